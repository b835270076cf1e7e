from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from millwheel.launch.launchers.spark import context
from millwheel.launch.launchers.spark.context import prepare_environment, reason, spark_home
from millwheel.launch.launchers.spark.launcher import failure
from millwheel.launch.launchers.spark.settings import SparkSettings


def test_a_run_takes_nothing_from_the_session_of_the_program_that_starts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context, "find_java", lambda: "/java/bin/java")
    theirs = dict.fromkeys(
        (
            "PYSPARK_GATEWAY_PORT",
            "PYSPARK_GATEWAY_SECRET",
            "SPARK_REMOTE",
            "SPARK_CONNECT_MODE_ENABLED",
        ),
        "1",
    )
    environment = {**theirs, "PYSPARK_PYTHON": "/p", "SPARK_CONF_DIR": "/c"}
    prepare_environment(SparkSettings("spark://h:1", 2, "app", "/s", "/l"), environment)
    assert environment == {"PYSPARK_PYTHON": "/p", "SPARK_CONF_DIR": "/c", "JAVA_HOME": "/java"}


@pytest.mark.parametrize(
    ("error", "log", "told"),
    [
        (
            (
                "An error occurred while calling"
                " None.org.apache.spark.api.java.JavaSparkContext.\n:"
                " org.apache.spark.SparkException: Only one SparkContext should be running\n\tat"
                " org.apache.X.y(Z.scala)\n"
            ),
            "",
            "org.apache.spark.SparkException: Only one SparkContext should be running",
        ),
        (
            (
                "An error occurred while calling None.X.\n: java.lang.Exception: outer\n\tat"
                " a.b\nCaused by: java.net.BindException: Address in use\n\tat c.d\n"
            ),
            "",
            "java.net.BindException: Address in use",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
            (
                'WARN x\nException in thread "main" org.apache.spark.SparkException: Remote cannot'
                " be specified\n\tat a.b"
            ),
            (
                'Exception in thread "main" org.apache.spark.SparkException: Remote cannot be'
                " specified"
            ),
        ),
        ("[JAVA_GATEWAY_EXITED] exited", "Unrecognized option: -Xz\n", "Unrecognized option: -Xz"),
        ("", "", "it gave no reason"),
    ],
)
def test_the_reason_for_which_spark_does_not_start_is_that_of_its_jvm(
    error: str, log: str, told: str
) -> None:
    assert reason(error, log) == told


def test_a_start_that_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(context, "_SLOW_S", 0.0)
    with context._announced_if_slow("slow", said.append):
        until_s = time.monotonic() + 10
        while not said and time.monotonic() < until_s:
            time.sleep(0.001)
    assert said == ["slow"]


def test_a_local_cluster_works_in_a_home_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# launcher.py


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
