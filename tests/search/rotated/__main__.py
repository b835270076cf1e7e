"""``python -m tests.search.rotated --seed 1 --runs 1000``: stories from seeds; the first that fails
is cut down and told."""

from __future__ import annotations

import argparse
import logging
import sys

from tests.search.rotated.running import failure, shrunk
from tests.search.rotated.stories import story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.search.rotated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("millwheel").addHandler(logging.NullHandler())
    for seed in range(given.seed, given.seed + given.runs):
        if failure(story(seed)):
            steps = shrunk(story(seed))
            print(f"seed {seed}: {failure(steps)}", *steps, sep="\n  ")
            return 1
    print(f"{given.runs} seeds, none failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
