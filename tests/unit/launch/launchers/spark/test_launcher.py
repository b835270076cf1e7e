from __future__ import annotations

import signal

import pytest

from millwheel.launch.launchers.spark.launcher import failure


@pytest.mark.parametrize(
    "text",
    [
        (
            "Job aborted due to stage failure: Lost task 0.0: ExecutorLostFailure (executor 0"
            " exited …)"
        ),
        "Job aborted due to stage failure: Python worker exited unexpectedly (crashed)",
        "TaskKilled (killed via SparkContext.killTaskAttempt)",
    ],
)
def test_a_task_that_was_killed_is_told_from_one_that_failed(text: str) -> None:
    assert failure(text)[0] == -signal.SIGKILL


def test_a_failure_of_sparks_own_is_told_in_its_words() -> None:
    code, words = failure(
        "py4j…\n  Job aborted due to stage failure: ModuleNotFoundError: No module named"
        " 'millwheel'\nat x"
    )
    assert code == 1
    assert words.endswith("No module named 'millwheel'")
    told = (
        "py4j: An error occurred\n  File x\nModuleNotFoundError: No module named 'msgspec'\n\tat"
        " org.apache.spark.X\n"
    )
    assert failure(told) == (1, "ModuleNotFoundError: No module named 'msgspec'")
    assert failure("Cannot call methods on a stopped SparkContext")[0] == 1
