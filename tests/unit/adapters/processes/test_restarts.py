from __future__ import annotations

import signal

import pytest

from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.restarts import (
    GIVE_UP,
    PATIENCE,
    QUICK_S,
    GiveUp,
    Restart,
    RestartPolicy,
    exit_words,
)

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
