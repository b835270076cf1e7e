"""Part H: what ids cost. Expected: 2 minutes a round.

The rates are those of part B with and without an id of each record, none of them a copy: each id is
asked for and remembered. What the Bloom filters spare and what a million ids take is measured on
one shard (``bench.seen_process``), without copies and with one in twenty.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.contestants import Contestant, ours
from bench.figures import Figure
from bench.inputs import ads
from bench.paths import HOUSE
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.throughput import FILES, QUICK_RECORDS, RECORDS, measure

SHARES = {"a shard's ids, no copies": 0.0, "a shard's ids, 5 % copies": 0.05}
_TIMEOUT_S = 300


def ids(wanted: Wanted) -> list[Figure]:
    """Part H."""
    load = ads(QUICK_RECORDS if wanted.quick else RECORDS, FILES)
    chosen = {
        "no ids": ours("callback"),
        "ids for 1m": ours("callback_ids", params={"horizon": "1m"}),
        "ids for 1h": ours("callback_ids", params={"horizon": "1h"}),
    }
    entries = [
        Entry(
            "millwheel", name, partial(measure, "B", Contestant("millwheel", start), "jsonl", load)
        )
        for name, start in chosen.items()
    ]
    entries += [
        Entry("millwheel", name, partial(remembered, load.records, share))
        for name, share in SHARES.items()
    ]
    return alternate("H", entries, {"records": load.records, "files": load.files}, wanted)


def remembered(ids: int, share: float, folder: Path) -> Measured:
    """One process that remembers so many ids, this share of them copies."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.seen_process", str(ids), str(share)],
        cwd=folder, env={"PYTHONPATH": str(HOUSE), "PATH": ""}, capture_output=True, text=True,
        timeout=_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        return Measured({}, None, done.stderr[-1_500:])
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(told["figures"], told["correct"])
