from __future__ import annotations

import pytest

from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.restarts import GIVE_UP
from millwheel.adapters.processes.supervisor import ProcessEnded, Supervisor
from millwheel.errors import SetupError


class Started:
    """Counts starts, and collects what was said."""

    def __init__(self) -> None:
        self.count = 0
        self.said: list[str] = []
        self.supervisor = Supervisor(self.said.append)
        self.supervisor.keep("worker 0", self.start)

    def start(self) -> None:
        self.count += 1


def test_a_process_is_started_when_it_is_to_be_kept_and_again_when_it_ends() -> None:
    world = Started()
    assert world.count == 1
    world.supervisor.ended(ProcessEnded("worker 0", -9, 60.0), 100.0)
    assert world.count == 1
    world.supervisor.step(100.0)
    world.supervisor.step(101.0)
    assert world.count == 2
    assert world.said == ["The worker 0 was killed by SIGKILL; it is started again at once."]
    assert world.supervisor.restarts() == {"worker 0": 1}


def test_a_delayed_restart_waits_for_its_time() -> None:
    world = Started()
    for _ in range(4):
        world.supervisor.ended(ProcessEnded("worker 0", 1, 0.0), 10.0)
        before = world.count
        world.supervisor.step(10.0)
    assert world.count == before
    world.supervisor.step(10.2)
    assert world.count == before + 1


def test_the_last_words_of_a_bad_configuration_end_the_run() -> None:
    world = Started()
    with pytest.raises(
        SetupError,
        match=r"The worker 0 cannot run as it is configured\. Its last words:\nno module billing",
    ):
        world.supervisor.ended(
            ProcessEnded("worker 0", Exit.BAD_CONFIG, 1.0, "no module billing"), 0.0
        )


def test_a_process_that_fails_again_and_again_ends_the_run() -> None:
    world = Started()
    death = ProcessEnded("worker 0", 1, 0.5, "ModuleNotFoundError")
    for _ in range(GIVE_UP - 1):
        world.supervisor.ended(death, 0.0)
    with pytest.raises(SetupError, match=f"{GIVE_UP} times within seconds"):
        world.supervisor.ended(death, 0.0)


def test_processes_that_never_died_are_not_in_the_restarts() -> None:
    assert Started().supervisor.restarts() == {}


def test_a_process_that_was_let_go_is_not_started_again() -> None:
    world, ends = Started(), []
    world.supervisor.let_go("worker 0", lambda: ends.append(1))
    world.supervisor.ended(ProcessEnded("worker 0", -9, 60.0), 100.0)
    world.supervisor.step(200.0)
    assert (world.count, ends, world.said) == (1, [1], [])


def test_a_process_that_was_dead_when_it_was_let_go_has_ended() -> None:
    world, ends = Started(), []
    world.supervisor.ended(ProcessEnded("worker 0", -9, 60.0), 100.0)
    world.supervisor.let_go("worker 0", lambda: ends.append(1))
    world.supervisor.step(200.0)
    assert (world.count, ends) == (1, [1])
