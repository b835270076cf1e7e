from __future__ import annotations

import pytest

from millwheel.adapters.processes.address import check_reach
from millwheel.adapters.processes.interpreter import module_command
from millwheel.errors import SetupError
from millwheel.launch.launchers.base import WorkerTemplate
from millwheel.launch.services import ServiceTemplate
from millwheel.launch.settings import (
    LauncherKind,
    RunSettings,
    launcher_for,
    parse_sets,
    parse_spares,
)


def test_parameters_are_pairs_and_the_value_may_hold_anything() -> None:
    assert parse_sets(["input=/a/*.log", "where=x=1", "empty=", " spaced =v"]) == {
        "input": "/a/*.log",
        "where": "x=1",
        "empty": "",
        "spaced": "v",
    }
    for bad in ("input", "=x", " =x"):
        with pytest.raises(SetupError, match="NAME=VALUE"):
            parse_sets([bad])


def test_spares_are_slots_beyond_the_workers() -> None:
    assert list(RunSettings("p.yaml", workers=2, spares=1).slots) == [0, 1, 2]
    assert RunSettings("p.yaml").root_address("ads") == ".millwheel/ads"
    assert RunSettings("p.yaml", root="/r").root_address("ads") == "/r"


def test_processes_serve_on_loopback_unless_told_otherwise() -> None:
    worker = WorkerTemplate("/r", "127.0.0.1:2181", "ads", "/r/logs", "")
    assert worker.command(3, "/s", python="py") == [
        *module_command("millwheel.engine.workers", python="py"),
        "--root",
        "/r",
        "--zookeeper",
        "127.0.0.1:2181",
        "--pipeline",
        "ads",
        "--slot",
        "3",
        "--scratch",
        "/s",
        "--listen",
        "127.0.0.1:0",
    ]
    service = ServiceTemplate("/r", "127.0.0.1:2181/x", "ads", "auto").arguments("--workers", "2")
    assert service == [
        "--root",
        "/r",
        "--zookeeper",
        "127.0.0.1:2181/x",
        "--pipeline",
        "ads",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "2",
    ]


def test_other_machines_need_a_zookeeper_that_they_reach() -> None:
    check_reach("127.0.0.1", "")
    check_reach("auto", "zookeeper:2181")
    with pytest.raises(SetupError, match="--zookeeper host:port/chroot"):
        check_reach("auto", "")


def test_without_a_word_workers_are_processes_unless_a_spark_master_is_named() -> None:
    assert launcher_for(None, "") is LauncherKind.PROCESSES
    assert launcher_for(None, "spark://h:7077") is LauncherKind.SPARK
    assert launcher_for(LauncherKind.SPARK, "") is LauncherKind.SPARK
    assert launcher_for(LauncherKind.PROCESSES, "spark://h:7077") is LauncherKind.PROCESSES


def test_spares_are_a_number_or_auto_which_begins_with_one() -> None:
    assert parse_spares("2") == 2
    assert list(RunSettings("p.yaml", workers=2, spares=parse_spares("auto")).slots) == [0, 1, 2]
    for text in ("", "-1", "many", "AUTO", "1.5"):
        with pytest.raises(SetupError, match="it is a number, or `auto`"):
            parse_spares(text)
