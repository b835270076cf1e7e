"""Run simulated clusters from seeds, on all cores.

    python -m tests.sim --seed 1 --runs 2000
    python -m tests.sim --seed 77 --faults kill,pause --trace
    python -m tests.sim --mutations

A failure is shrunk, and told with the events that concern it and the command that replays it. The
exit code is 1.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.sim.faults import ALL_FAULTS
from tests.sim.kernel import Failure
from tests.sim.mistakes import is_stale
from tests.sim.mutations import MUTATIONS
from tests.sim.run import Case, simulate
from tests.sim.story import failure_of, tell
from tests.sim.workloads import WORKLOADS


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed went, small enough to come from another process."""

    seed: int
    trace_hash: str = ""
    simulated_s: float = 0.0
    refused: str = ""
    told: str = ""


def main() -> int:
    given = _arguments().parse_args()
    logging.disable(logging.CRITICAL)
    if given.mutations:
        return _mutations()
    faults = (
        ALL_FAULTS if given.faults == "all" else frozenset(given.faults.split(",")) - {"none", ""}
    )
    if unknown := faults - ALL_FAULTS:
        sys.exit(
            f"no such faults: {', '.join(sorted(unknown))}. There are"
            f" {', '.join(sorted(ALL_FAULTS))}"
        )
    keep = (
        None if given.keep is None else tuple(int(n) for n in given.keep.split(",") if n != "none")
    )
    cases = [
        Case(
            seed,
            faults,
            given.workload,
            keep,
            given.size,
            given.savepoint,
            given.finish,
            given.embedded,
            given.days,
        )
        for seed in range(given.seed, given.seed + given.runs)
    ]
    return _one(cases[0], given.trace) if len(cases) == 1 else _many(cases, given.processes)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, from the first one on")
    parser.add_argument(
        "--faults",
        default="all",
        help=f"kinds of faults, or none; of {', '.join(sorted(ALL_FAULTS))}",
    )
    parser.add_argument(
        "--workload",
        default="",
        choices=["", *sorted(WORKLOADS)],
        help="one workload for all seeds",
    )
    parser.add_argument(
        "--keep", help="numbers of the planned faults that happen, or none (one seed)"
    )
    parser.add_argument("--size", type=float, default=1.0, help="how much input, from 0 to 1")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many seeds at a time"
    )
    parser.add_argument(
        "--savepoint", action="store_true", help="take savepoints, and go on from one of them"
    )
    parser.add_argument(
        "--finish", action="store_true", help="tell the sources to end where they are"
    )
    parser.add_argument(
        "--embedded", action="store_true", help="the embedded coordinator in place of ZooKeeper"
    )
    parser.add_argument(
        "--days",
        action="store_true",
        help="runs that end once they have caught up, one after another",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happened (one seed)")
    parser.add_argument(
        "--mutations",
        action="store_true",
        help="put each known mistake into the code and look for it",
    )
    return parser


def _one(case: Case, trace: bool) -> int:
    try:
        result = simulate(case)
    except Failure as ex:
        print("\n".join(map(str, ex.story)) if trace else tell(case, ex))
        print(f"seed {case.seed} failed: {ex}")
        return 1
    if trace:
        print("\n".join(map(str, result.story)))
    if result.refused:
        print(f"damage was found and refused: {result.refused}")
    print(
        f"seed {case.seed} passed: trace hash {result.trace_hash}, {result.simulated_s:.1f} s"
        " simulated"
    )
    return 0


def _many(cases: list[Case], processes: int) -> int:
    started = time.monotonic()
    failed = simulated = refused = 0
    for number, outcome in enumerate(_outcomes(cases, processes), 1):
        simulated += int(outcome.simulated_s)
        refused += bool(outcome.refused)
        if outcome.told:
            failed += 1
            print(outcome.told, flush=True)
        if number % 200 == 0:
            print(
                f"{number} seeds, {failed} failed, {time.monotonic() - started:.0f} s", flush=True
            )
    took = time.monotonic() - started
    print(
        f"{len(cases)} seeds, {failed} failed, {refused} refused damage; {simulated} s simulated in"
        f" {took:.1f} s with {processes} processes"
    )
    return 1 if failed else 0


def _outcomes(cases: list[Case], processes: int) -> Iterator[Outcome]:
    if processes == 1:
        yield from map(_outcome, cases)
        return
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool:
        yield from pool.map(_outcome, cases, chunksize=4)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


def _outcome(case: Case) -> Outcome:
    try:
        result = simulate(case)
    except Failure as ex:
        return Outcome(case.seed, told=tell(case, ex))
    return Outcome(case.seed, result.trace_hash, result.simulated_s, result.refused)


def _mutations(names: Iterable[str] = MUTATIONS) -> int:
    missed = 0
    with ProcessPoolExecutor(initializer=_quiet) as pool:
        for name, seed, text in pool.map(_caught, names):
            missed += seed < 0
            print(
                f"{name}: " + ("NOT NOTICED" if seed < 0 else f"seed {seed}: {text[:150]}"),
                flush=True,
            )
    return 1 if missed else 0


def _caught(name: str) -> tuple[str, int, str]:
    mutation = MUTATIONS[name]
    with mutation.make():
        for case in mutation.cases():
            failure = failure_of(case)
            if failure is not None:
                return (name, -1, "") if is_stale(str(failure)) else (name, case.seed, str(failure))
    return name, -1, ""


if __name__ == "__main__":
    sys.exit(main())
