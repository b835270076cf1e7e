"""``python -m tests.search.forms --seed 1 --runs 200``: many seeds, each in columns and in rows."""

from __future__ import annotations

import argparse
import sys

from millwheel.errors import PipelineError
from tests.search.forms.drawing import case
from tests.search.forms.running import failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.search.forms")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        try:
            found = failure(seed)
        except PipelineError as ex:
            found = f"drawn against the rules: {ex}"
        if found:
            failed += 1
            print(f"seed {seed}: {found}")
            if asked.runs == 1:
                drawn = case(seed)
                print(drawn.yaml, *drawn.script, sep="\n")
    print(f"{asked.runs} seeds, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
