"""What a machine gives to so many bare Python loops at once: the limit for workers, whatever they
do beside.

Each loop is a process that reads JSON lines and keeps a sum for each key; they share nothing, and
begin together. Cores that are threads of one core, and memory that all share, show here, so what is
lost beyond it is ours.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.paths import HOUSE


class _Event(msgspec.Struct):
    ad_id: int
    cost: float


def seconds(inputs: Sequence[Sequence[Path]]) -> float:
    """How long the slowest of the loops takes, one for each sequence of files."""
    command = [sys.executable, "-m", "bench.bare_loops"]
    loops = [
        subprocess.Popen(
            [*command, *map(str, paths)],
            cwd=HOUSE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for paths in inputs
    ]
    for each in loops:
        assert each.stdout is not None
        each.stdout.readline()  # it has loaded everything
    for each in loops:
        assert each.stdin is not None
        each.stdin.write("begin\n")
        each.stdin.flush()
    told = [each.communicate()[0] for each in loops]
    return max(map(float, told))


def loop(paths: Sequence[Path]) -> dict[int, tuple[int, float]]:
    """Count and sum for each key of the files."""
    decode = msgspec.json.Decoder(_Event).decode
    state: dict[int, tuple[int, float]] = {}
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                event = decode(line)
                count, total = state.get(event.ad_id, (0, 0.0))
                state[event.ad_id] = (count + 1, total + event.cost)
    return state


def _one(paths: Sequence[Path]) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    loop(paths)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    _one([Path(each) for each in sys.argv[1:]])
