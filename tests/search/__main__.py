"""``python -m tests.search --seed N --runs K``: pipelines from seeds, each run in several ways.

Exit codes: 0 nothing differs, 1 something does.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.search.generate import Unlucky, case
from tests.search.shrink import shrunk, tell
from tests.search.variants import VARIANTS, Finding, chosen, examine

_CHUNK = 10


@dataclass(frozen=True, slots=True)
class _Task:
    seeds: tuple[int, ...]
    ways: int
    names: tuple[str, ...]
    features: tuple[str, ...]
    without: frozenset[str]


def main() -> int:
    args = _arguments()
    logging.disable(logging.CRITICAL)
    if args.mutations:
        return _mutations(args.jobs)
    began = time.monotonic()
    seeds = range(args.seed, args.seed + args.runs)
    parts = [tuple(seeds[at : at + _CHUNK]) for at in range(0, len(seeds), _CHUNK)]
    names = tuple(VARIANTS) if args.variant == "all" else _words(args.variant)
    tasks = [
        _Task(part, args.ways, names, _words(args.features), frozenset(_words(args.without)))
        for part in parts
    ]
    found: list[Finding] = []
    run = 0
    for count, findings in _mapped(tasks, args.jobs):
        run += count
        for finding in findings:
            found.append(finding)
            print(f"FAILED {finding}"[:400], flush=True)
        if len(found) >= args.most:
            break
    for finding in found[: args.told]:
        print(
            "\n" + "=" * 100 + "\n" + tell(shrunk(finding) if args.shrink else finding), flush=True
        )
    print(f"{run} seeds, {len(found)} failed, {time.monotonic() - began:.0f} s")
    if not run:
        print("no seed draws a pipeline with these features, and without those: nothing was run")
    return 1 if found or not run else 0


def _mutations(jobs: int) -> int:
    """Put each known mistake into the code and look for it."""
    from tests.search.mutations import MUTATIONS

    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, seed, told in pool.map(_caught, MUTATIONS):
            missed += seed < 0
            print(
                f"{name}: " + ("NOT CAUGHT" if seed < 0 else f"seed {seed}: {told[:150]}"),
                flush=True,
            )
    return 1 if missed else 0


def _caught(name: str) -> tuple[str, int, str]:
    from tests.search.mutations import MUTATIONS

    logging.disable(logging.CRITICAL)
    found = MUTATIONS[name].caught()
    return (name, -1, "") if found is None else (name, found.case.seed, str(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.search", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds")
    parser.add_argument(
        "--ways", type=int, default=4, help="in how many ways each is run, beside the base"
    )
    parser.add_argument(
        "--variant", default="", help="these ways, with commas between them, or all"
    )
    parser.add_argument("--features", default="", help="only pipelines with these features")
    parser.add_argument("--without", default="", help="only pipelines with none of these features")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes")
    parser.add_argument("--most", type=int, default=20, help="end after so many failures")
    parser.add_argument("--told", type=int, default=3, help="how many of them are shrunk and told")
    parser.add_argument(
        "--mutations",
        action="store_true",
        help="put each known mistake into the code and look for it",
    )
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="tell them as they were drawn"
    )
    return parser.parse_args()


def _mapped(tasks: list[_Task], jobs: int):  # type: ignore[no-untyped-def]
    if jobs <= 1 or len(tasks) == 1:
        yield from map(_work, tasks)
        return
    with ProcessPoolExecutor(
        jobs, initializer=logging.disable, initargs=(logging.CRITICAL,)
    ) as pool:
        try:
            yield from pool.map(_work, tasks)
        finally:
            pool.shutdown(cancel_futures=True)


def _words(text: str) -> tuple[str, ...]:
    """Words with spaces or commas between them."""
    return tuple(text.replace(",", " ").split())


def _work(task: _Task) -> tuple[int, list[Finding]]:
    """How many seeds were run, and what they found."""
    found: list[Finding] = []
    run = 0
    for seed in task.seeds:
        try:
            drawn = case(seed, task.features)
        except Unlucky:  # of many features
            continue
        if not drawn.features & task.without:
            found += examine(drawn, chosen(seed, task.ways, task.names))
            run += 1
    return run, found


if __name__ == "__main__":
    sys.exit(main())
