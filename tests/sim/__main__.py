"""``python -m tests.sim --seed N [--runs K] [--faults kill,cut,…] [--trace]``: run simulated clusters from seeds."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.run import ALL_FAULTS, simulate
from tests.sim.world import Failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, from the first one on")
    parser.add_argument("--faults", default=",".join(sorted(ALL_FAULTS)), help="kinds of faults, or none")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    given = parser.parse_args()
    faults = frozenset(given.faults.split(",")) if given.faults not in ("", "none") else frozenset()
    started = time.monotonic()
    for seed in range(given.seed, given.seed + given.runs):
        try:
            result = simulate(seed, faults)
        except Failure as ex:
            print(f"seed {seed}: {ex}\nreplay: python -m tests.sim --seed {seed} --faults {given.faults} --trace")
            if given.trace:
                print("\n".join(getattr(ex, "story", ["no story"])))
            return 1
        if given.trace:
            print("\n".join(result.story))
        if given.runs == 1:
            print(f"seed {seed}: trace hash {result.trace_hash}, {result.simulated_s:.1f} s simulated")
    print(f"{given.runs} seeds passed in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
