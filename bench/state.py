"""Part D: what happens as the state grows, from 10 thousand to 10 million keys, and values from 100
bytes to 10 kB.

One shard in one process (``bench.state_process``), so that the figures are of the state and of
nothing else. Expected: 5 minutes a round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.figures import Figure
from bench.paths import HOUSE
from bench.rounds import Entry, Measured, Wanted, alternate

SIZES = (
    (10_000, 100),
    (100_000, 100),
    (1_000_000, 100),
    (10_000_000, 100),
    (10_000, 10_000),
    (100_000, 10_000),
)
QUICK_SIZES = ((10_000, 100), (1_000, 10_000))
UPDATES, QUICK_UPDATES = 500_000, 50_000
_MOST_BYTES_WRITTEN = 2_000_000_000
_TIMEOUT_S = 900


def state(wanted: Wanted) -> list[Figure]:
    """Part D."""
    updates = QUICK_UPDATES if wanted.quick else UPDATES
    sizes = QUICK_SIZES if wanted.quick else SIZES
    entries = [
        Entry("millwheel", f"{keys:,} keys of {size:,} B", partial(measure, keys, size, updates))
        for keys, size in sizes
    ]
    return alternate("D", entries, {"updates": updates, "bundle": 10_000}, wanted)


def measure(keys: int, size: int, updates: int, folder: Path) -> Measured:
    """One process, from an empty store to its recovery."""
    command = [sys.executable, "-m", "bench.state_process", str(keys), str(size)]
    done = subprocess.run(
        [*command, str(min(updates, _MOST_BYTES_WRITTEN // size))],
        cwd=folder, env={"PYTHONPATH": str(HOUSE), "PATH": ""}, capture_output=True, text=True,
        timeout=_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        return Measured({}, None, done.stderr[-1_500:])
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(told["figures"], told["correct"])
