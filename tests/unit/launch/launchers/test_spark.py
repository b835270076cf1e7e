from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millwheel.launch.launchers.spark import SparkSettings, failure, spark_home


def settings(master: str = "", submitted: bool = False) -> SparkSettings:
    return SparkSettings(master, 3, "app", "/scratch", "/logs/spark.log", submitted)


def test_without_a_master_there_is_an_executor_process_for_each_slot() -> None:
    assert settings().url.startswith("local-cluster[3,1,")
    assert settings().local
    assert settings("local[2]").local
    assert not settings("spark://host:7077").local
    assert not settings(submitted=True).local


@pytest.mark.parametrize("given", [settings(), settings("spark://host:7077"), settings(submitted=True)])
def test_spark_neither_retries_nor_doubles_nor_reuses_a_task(given: SparkSettings) -> None:
    conf = given.configuration()
    assert conf["spark.task.maxFailures"] == "1"
    assert conf["spark.speculation"] == "false"
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    assert conf["spark.python.worker.reuse"] == "false"


def test_a_spark_of_our_own_serves_loopback_only_and_one_that_is_given_is_left_alone() -> None:
    conf = settings().configuration()
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"
    for given in (settings("spark://host:7077"), settings(submitted=True)):
        assert not [name for name in given.configuration() if name.startswith(("spark.driver.", "spark.executor."))]


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: Lost task 0.0: ExecutorLostFailure (executor 0 exited …)",
        "Job aborted due to stage failure: Python worker exited unexpectedly (crashed)",
        "TaskKilled (killed via SparkContext.killTaskAttempt)",
    ],
)
def test_a_task_that_was_killed_is_told_from_one_that_failed(text: str) -> None:
    assert failure(text)[0] == -signal.SIGKILL


def test_a_failure_of_sparks_own_is_told_in_its_words() -> None:
    code, words = failure(
        "py4j…\n  Job aborted due to stage failure: ModuleNotFoundError: No module named 'millwheel'\nat x"
    )
    assert code == 1
    assert words.endswith("No module named 'millwheel'")
    told = (
        "py4j: An error occurred\n  File x\nModuleNotFoundError: No module named 'msgspec'\n\tat org.apache.spark.X\n"
    )
    assert failure(told) == (1, "ModuleNotFoundError: No module named 'msgspec'")
    assert failure("Cannot call methods on a stopped SparkContext")[0] == 1


def test_a_local_cluster_works_in_a_home_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    for name in ("bin", "jars", "work"):
        (installed / name).mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(installed))
    for _ in range(2):
        home = Path(spark_home(tmp_path / "home"))
        assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
        assert (home / "bin").resolve() == installed / "bin"
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert spark_home(home) == str(home)
