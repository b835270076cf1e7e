from __future__ import annotations

import pytest

from millwheel.errors import SetupError
from millwheel.launch.launchers.spark.settings import (
    SparkSettings,
    check_conf,
    most_workers,
    open_to_all,
)


def settings(master: str = "", submitted: bool = False) -> SparkSettings:
    return SparkSettings(master, 3, "app", "/scratch", "/logs/spark.log", submitted)


def test_without_a_master_there_is_an_executor_process_for_each_slot() -> None:
    assert settings().url.startswith("local-cluster[3,1,")
    assert settings().local
    assert settings("local[2]").local
    assert not settings("spark://host:7077").local
    assert not settings(submitted=True).local


@pytest.mark.parametrize(
    "given", [settings(), settings("spark://host:7077"), settings(submitted=True)]
)
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
        assert not [
            name
            for name in given.configuration()
            if name.startswith(("spark.driver.", "spark.executor."))
        ]


def test_a_spark_of_our_own_asks_who_calls_it_and_no_command_line_has_the_secret() -> None:
    given = settings()
    conf, hidden, others = given.configuration(), given.hidden(), settings().hidden()
    assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")
    assert len(hidden["spark.authenticate.secret"]) == 64
    assert not hidden.keys() & conf.keys()
    assert set(hidden.values()).isdisjoint(others.values()), "each run has secrets of its own"
    assert settings("spark://host:7077").hidden() == settings(submitted=True).hidden() == {}


@pytest.mark.parametrize(
    ("authenticate", "warns"), [(None, True), ("true", False), ("false", False)]
)
def test_a_spark_that_takes_anybody_is_warned_of_and_refused_in_a_secured_run(
    authenticate: str | None, warns: bool
) -> None:
    given = {} if authenticate is None else {"spark.authenticate": authenticate}
    assert open_to_all(given.get, secured=False).startswith("Warning: This Spark does not") == warns
    if not warns:
        assert open_to_all(given.get, secured=True) == ""
        return
    with pytest.raises(SetupError, match=r"--conf spark\.authenticate=false"):
        open_to_all(given.get, secured=True)


def test_settings_of_the_user_come_before_those_of_ours() -> None:
    given = SparkSettings(
        "", 3, "app", "/scratch", "/l", conf={"spark.executor.memory": "2g", "spark.x": "1"}
    )
    conf = given.configuration()
    assert (conf["spark.executor.memory"], conf["spark.x"]) == ("2g", "1")


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({"spark.task.maxFailures": "4"}, "a run sets it to 1"),
        ({"spark.dynamicAllocation.enabled": "TRUE"}, "a run sets it to false"),
        ({"spark.master": "yarn"}, "--spark-master yarn"),
        ({"executor.memory": "1g"}, "begin with spark"),
    ],
)
def test_a_setting_that_no_run_can_have_is_refused(conf: dict[str, str], reason: str) -> None:
    with pytest.raises(SetupError, match=reason):
        check_conf(conf)
    check_conf({"spark.speculation": "False", "spark.executor.memoryOverhead": "2g"})


CASES = [
    ("spark://h:7077", {}, {"spark.cores.max": "3", "spark.executor.cores": "1"}, 3),
    ("spark://h:7077", {"spark.cores.max": "8"}, {"spark.executor.cores": "1"}, 8),
    ("spark://h:7077", {"spark.executor.cores": "2"}, {"spark.cores.max": "4"}, 4),
    (
        "spark://h:7077",
        {"spark.task.cpus": "2"},
        {"spark.cores.max": "6", "spark.executor.cores": "2"},
        3,
    ),
    (
        "yarn",
        {},
        {"spark.executor.instances": "3", "spark.executor.cores": "1", "spark.cores.max": "3"},
        3,
    ),
    (
        "k8s://h:1",
        {"spark.executor.instances": "9"},
        {"spark.executor.cores": "1", "spark.cores.max": "3"},
        9,
    ),
    ("local[4]", {}, {}, None),
]


@pytest.mark.parametrize(("master", "given", "placed", "most"), CASES)
def test_each_worker_gets_an_executor_and_the_application_no_more_cores_than_it_has_workers(
    master: str, given: dict[str, str], placed: dict[str, str], most: int | None
) -> None:
    found = settings(master).placement(given.get, master)
    if placed:
        assert found.pop("spark.executor.memory") == "512m"
    assert found == placed
    assert most_workers({**found, **given}.get, master) == most


def test_spares_that_come_later_have_room() -> None:
    given = SparkSettings("spark://h:1", 3, "app", "/s", "/l", room=4)
    assert given.placement({}.get, given.url)["spark.cores.max"] == "4"
