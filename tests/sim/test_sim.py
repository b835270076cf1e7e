from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim.faults import ALL_FAULTS, FAULTS, plan
from tests.sim.kernel import Failure
from tests.sim.mistakes import is_stale
from tests.sim.mutations import MUTATIONS
from tests.sim.run import Case, simulate
from tests.sim.story import concerning, failure_of, shrunk, tell
from tests.sim.workloads import BY_NAME, WORKLOADS

_LATER = (pytest.mark.slow, pytest.mark.long)


def _seeds(*seeds: int, more: Iterable[int] = ()) -> list[Any]:
    """The seeds of a test; ``more`` of them where there is time."""
    return [*seeds, *(pytest.param(seed, marks=_LATER) for seed in more)]


_QUICK = 2  # seeds
QUICKLY_CAUGHT = [name for name, mutation in MUTATIONS.items() if mutation.within <= _QUICK]

REGRESSIONS = {
    # Two weak productions of one record, made by two computations, had the same id where a third
    # consumed both.
    11013: ("none", ""),
    # A production behind a computation that consumes its own output, for which no watermark is
    # promised.
    956: ("merge partition", "accounts"),
    # A commit of a merged shard, which has a mark for each part of its range.
    480: ("merge reshard", ""),
    # A worker that is so slow to join that its journal was collected before it got its first shard.
    55: ("one-way join", ""),
    # A clock that is set back by an hour: a worker waited for it to come there again.
    14: ("clock", ""),
    # Back-pressure in a circle of computations that wait for each other.
    8: ("none", "accounts"),
    # A weak production, checkpointed because its consumer was slow, sent again after the watermark
    # had passed it.
    30: ("kill", "numbers"),
    # A group of a change log that had yet to be spoken of, and a late record of it: the hold went.
    48276: ("none", ""),
    # A timer that a callback set behind the watermark, and what was made of it: nothing is wrong.
    73052: ("none", ""),
    # A change log over windows that take back: it takes a version back at that version's time,
    # which the watermark has passed. Nothing is wrong.
    451196: ("none", ""),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def told(case: Case) -> None:
    try:
        simulate(case)
    except Failure as ex:
        pytest.fail(tell(case, ex), pytrace=False)


@pytest.mark.parametrize("seed", _seeds(*range(1, 6), more=range(6, 17)))
def test_a_cluster_under_faults_gives_the_results_of_one_without(seed: int) -> None:
    told(Case(seed))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(ALL_FAULTS))
def test_a_cluster_survives_each_kind_of_fault_alone(kind: str) -> None:
    told(Case(sum(kind.encode()), frozenset({kind}), size=0.5))


@pytest.mark.parametrize(
    "workload",
    # under faults the others run in any case, below
    [pytest.param(name, marks=_LATER if name in BY_NAME else ()) for name in sorted(WORKLOADS)],
)
def test_each_workload_passes_without_faults(workload: str) -> None:
    told(Case(3, frozenset(), workload))


@pytest.mark.parametrize(
    "seed",
    _seeds(1, more=(2, 3)),
)
@pytest.mark.parametrize("workload", sorted(BY_NAME))
def test_workloads_that_no_seed_chooses_survive_all_faults(workload: str, seed: int) -> None:
    told(Case(seed, workload=workload))


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_went_wrong_once_does_not_again(seed: int) -> None:
    faults, workload = REGRESSIONS[seed]
    told(Case(seed))
    told(Case(seed, frozenset(faults.split()) - {"none"}, workload))


@pytest.mark.parametrize("seed", _seeds(1, 2, 3, more=range(4, 9)))
def test_a_cluster_that_the_embedded_coordinator_holds_together_survives_all_faults(
    seed: int,
) -> None:
    told(Case(seed, embedded=True))


@pytest.mark.parametrize("kind", ["session", "zookeeper", "answers", "pause", "partition", "drain"])
def test_the_embedded_coordinator_survives_each_kind_of_fault_that_concerns_it(kind: str) -> None:
    told(Case(sum(kind.encode()), frozenset({kind}), size=0.5, embedded=True))


@pytest.mark.parametrize("seed", _seeds(1, 2, 3, more=(4, 5, 6)))
def test_a_cluster_that_goes_on_from_a_savepoint_gives_uninterrupted_results(seed: int) -> None:
    told(Case(seed, savepoint=True))


# workers die that have sent what they had not committed as read
@pytest.mark.parametrize("seed", [13, 18, 46, 114])
def test_a_cluster_whose_sources_are_told_to_end_gives_the_results_of_what_was_read(
    seed: int,
) -> None:
    told(Case(seed, finish=True))


@pytest.mark.parametrize("seed", [1, 2, 20083, 20093])  # in the last two no run ever caught up
def test_runs_that_end_caught_up_and_go_on_give_the_results_of_one_run(seed: int) -> None:
    told(Case(seed, days=True))


# in 11 and 23, windows in columns came in another order
@pytest.mark.parametrize("seed", _seeds(11, 23, more=(77, 82)))
def test_the_same_seed_gives_the_same_story(seed: int) -> None:
    first, second = simulate(Case(seed)), simulate(Case(seed))
    assert first.story == second.story
    assert first.trace_hash == second.trace_hash


def test_the_same_seed_gives_the_same_story_in_another_process_and_another_folder(
    tmp_path: Path,
) -> None:
    code = (
        "from tests.sim.run import Case, simulate; [print(simulate(Case(seed)).trace_hash) for seed"
        " in (4, 45)]"
    )
    here, elsewhere = Path(__file__).parents[2], tmp_path / "elsewhere"
    elsewhere.mkdir()
    for package in ("millwheel", "tests"):
        (elsewhere / package).symlink_to(here / package)
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # sets of names are in different orders
        for folder, hash_seed in ((here, "1"), (elsewhere, "7"))
    ]
    first, second = (run.communicate(timeout=300)[0].split() for run in runs)
    assert len(first) == 2
    assert first == second


def test_another_seed_gives_another_story() -> None:
    assert simulate(Case(77)).trace_hash != simulate(Case(78)).trace_hash


def test_leaving_a_fault_out_leaves_the_others_as_they_were() -> None:
    planned = Case(1).planned()
    assert Case(1, keep=(1,)).planned() == [planned[1]]
    assert {fault.kind for fault in plan(5, ALL_FAULTS, 5_000_000)} <= set(FAULTS)


@pytest.mark.parametrize("name", QUICKLY_CAUGHT)
def test_a_deliberate_mistake_is_caught(name: str) -> None:
    assert_caught(name)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in QUICKLY_CAUGHT])
def test_every_deliberate_mistake_is_caught(name: str) -> None:
    assert_caught(name)


def assert_caught(name: str) -> None:
    mutation = MUTATIONS[name]
    with mutation.make():
        for case in mutation.cases():
            failure = failure_of(case)
            if failure is not None:
                assert not is_stale(str(failure)), f"the mistake does not fit the code: {failure}"
                return
    pytest.fail(f"{name} was not noticed in {mutation.within} seeds")


def test_a_failure_is_told_shortly() -> None:
    mutation = MUTATIONS["pending_productions_forgotten"]
    with mutation.make():
        case, failure = next((c, f) for c in mutation.cases() if (f := failure_of(c)) is not None)
        short, found = shrunk(case, failure, tries=3)
    assert len(short.planned()) <= len(case.planned())
    assert short.size <= case.size
    assert len(concerning(found.story, found.about)) <= 60
    assert f"--seed {case.seed}" in short.command()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(1_000, 1_080, 20)])
def test_many_seeds_pass(seeds: range) -> None:
    for seed in seeds:
        told(Case(seed))
