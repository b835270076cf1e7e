from __future__ import annotations

import pytest

from millwheel.errors import MillwheelError
from tests.sim.mutations import MUTATIONS
from tests.sim.run import ALL_FAULTS, simulate
from tests.sim.world import Failure

CAUGHT_WITHIN = 60


@pytest.mark.parametrize("seed", range(1, 25))
def test_a_cluster_under_faults_gives_the_results_of_one_without(seed: int) -> None:
    simulate(seed)


def test_the_same_seed_gives_the_same_story() -> None:
    assert simulate(77).trace_hash == simulate(77).trace_hash


def test_another_seed_gives_another_story() -> None:
    assert simulate(77).trace_hash != simulate(78).trace_hash


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_deliberate_mistake_is_caught(name: str) -> None:
    with MUTATIONS[name]():
        for seed in range(1, CAUGHT_WITHIN + 1):
            try:
                simulate(seed, ALL_FAULTS)
            except (Failure, MillwheelError, AssertionError, KeyError, IndexError):
                return
    pytest.fail(f"{name} was not noticed in {CAUGHT_WITHIN} seeds")
