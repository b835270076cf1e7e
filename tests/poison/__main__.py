"""``python -m tests.poison``: every value alone in every place, and the matrix."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.poison import matrix
from tests.poison.places import Place, places
from tests.poison.sweep import poisons, run, wrong


def _judge(task: tuple[Place, dict[str, str]]) -> list[str]:
    place, poison = task
    with tempfile.TemporaryDirectory() as folder:
        return wrong(place, poison, Path(folder))


def _row(place: Place) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return place.name, matrix.row(place, run(place, poisons(place), Path(folder)))


def main() -> int:
    """1 if the rule is broken anywhere."""
    parser = argparse.ArgumentParser(prog="python -m tests.poison", description=__doc__)
    parser.add_argument(
        "--place", default="", help="only places whose name or family has this text"
    )
    parser.add_argument("--value", default="", help="only values whose name has this text")
    parser.add_argument("--together", action="store_true", help="all values of a place in one run")
    parser.add_argument(
        "--write", action="store_true", help="write the table in matrix.txt, and judge nothing"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.write:
        with ProcessPoolExecutor(options.jobs) as pool:
            matrix.write(dict(pool.map(_row, places())))
        return 0
    tasks: list[tuple[Place, dict[str, str]]] = []
    for place in places():
        if options.place in place.name or options.place in place.family:
            poison = {name: text for name, text in poisons(place).items() if options.value in name}
            tasks += (
                [(place, poison)]
                if options.together
                else [(place, {name: text}) for name, text in poison.items()]
            )
    started, bad = time.monotonic(), 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(_judge, tasks, chunksize=1 if options.together else 20):
            bad += bool(found)
            for line in found:
                print(line, flush=True)
    print(f"{len(tasks)} runs, {bad} break the rule, {time.monotonic() - started:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
