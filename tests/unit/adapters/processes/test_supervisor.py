from __future__ import annotations

import signal

import pytest

from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.supervisor import (
    GIVE_UP,
    PATIENCE,
    QUICK_S,
    GiveUp,
    ProcessEnded,
    Restart,
    RestartPolicy,
    Supervisor,
    exit_words,
)
from millwheel.errors import SetupError

LONG_S = QUICK_S * 2


def test_a_crash_after_a_long_life_is_answered_at_once() -> None:
    policy = RestartPolicy()
    assert [policy.after(1, LONG_S) for _ in range(50)] == [Restart(0.0)] * 50
    assert policy.restarts == 50


def test_quick_failures_in_a_row_wait_longer_each_time_up_to_a_limit() -> None:
    policy = RestartPolicy()
    delays = [policy.after(1, 0.1) for _ in range(GIVE_UP - 1)]
    waits = [step.delay_s for step in delays if isinstance(step, Restart)]
    assert waits[:PATIENCE] == [0.0] * PATIENCE
    assert waits == sorted(waits)
    assert len(waits) == GIVE_UP - 1
    assert 0.0 < waits[-1] <= 5.0


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGTERM, Exit.FENCED])
def test_what_others_did_to_it_is_answered_at_once_however_often(code: int) -> None:
    policy = RestartPolicy()
    assert [policy.after(code, 0.1) for _ in range(GIVE_UP * 5)] == [Restart(0.0)] * (GIVE_UP * 5)


def test_kills_in_between_neither_forgive_failures_nor_add_to_them() -> None:
    policy = RestartPolicy()
    steps = [policy.after(code, 0.1) for _ in range(GIVE_UP) for code in (1, -signal.SIGKILL)]
    assert all(isinstance(step, Restart) for step in steps[:-2])
    assert isinstance(steps[-2], GiveUp)


def test_a_process_that_keeps_failing_by_itself_is_given_up() -> None:
    policy = RestartPolicy()
    steps = [policy.after(1, 0.1) for _ in range(GIVE_UP)]
    assert all(isinstance(step, Restart) for step in steps[:-1])
    assert isinstance(steps[-1], GiveUp)
    assert "exit code 1" in steps[-1].reason


def test_a_crash_in_native_code_counts_as_a_failure_of_its_own() -> None:
    policy = RestartPolicy()
    steps = [policy.after(-signal.SIGSEGV, 0.1) for _ in range(GIVE_UP)]
    assert isinstance(steps[-1], GiveUp)


def test_one_long_life_forgives_all_failures_before_it() -> None:
    policy = RestartPolicy()
    for _ in range(5):
        for _ in range(GIVE_UP - 1):
            assert isinstance(policy.after(1, 0.1), Restart)
        assert policy.after(1, LONG_S) == Restart(0.0)


def test_a_bad_configuration_is_never_tried_twice() -> None:
    policy = RestartPolicy()
    assert isinstance(policy.after(Exit.BAD_CONFIG, LONG_S), GiveUp)
    assert policy.restarts == 0


def test_exit_codes_are_told_in_words() -> None:
    assert exit_words(-9) == "was killed by SIGKILL"
    assert exit_words(-200) == "was killed by signal 200"
    assert exit_words(3) == "ended with exit code 3"
    assert "fenced" in exit_words(Exit.FENCED)


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
