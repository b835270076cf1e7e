from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from millwheel.errors import SetupError
from millwheel.launch.launchers.spark.master import (
    check_installed,
    check_machines,
    check_master,
    remote_note,
)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_master_that_listens_is_fine(listening: int, closed: int) -> None:
    check_master(f"spark://127.0.0.1:{listening}")
    check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{listening}")
    check_master(f"k8s://https://127.0.0.1:{listening}")


def test_a_master_that_does_not_is_a_sentence_with_the_way_out(closed: int) -> None:
    with pytest.raises(
        SetupError,
        match=rf"No Spark master .* 127.0.0.1:{closed} says Connection refused.*spark://HOST:7077",
    ):
        check_master(f"spark://127.0.0.1:{closed}")


@pytest.mark.parametrize("url", ["", "yarn", "local", "local[2]", "local-cluster[2,1,512]"])
def test_what_names_no_address_is_left_to_spark(url: str) -> None:
    check_master(url)


@pytest.mark.parametrize(
    "url", ["spark://host", "spark://:7077", "spark://a:1,b", "spark://host:99999"]
)
def test_an_address_without_a_port_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(SetupError, match="write it as spark://HOST:PORT"):
        check_master(url)


def test_whatever_does_not_answer_is_given_up_in_time() -> None:
    never, started_s = threading.Event(), time.monotonic()
    with pytest.raises(SetupError, match="no answer within"):
        check_master("spark://a:1,b:2", patience_s=0.1, connect=lambda *_: never.wait(60))
    never.set()
    assert time.monotonic() - started_s < 30


def test_a_plain_install_is_told_how_to_get_spark_and_how_to_do_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(
        SetupError, match=r"millwheel-spark\[spark\].*plain processes of this machine need neither"
    ):
        check_installed()


@pytest.mark.parametrize(
    "url",
    [
        "yarn",
        "k8s://https://127.0.0.1:6443",
        "spark://192.0.2.7:7077",
        "spark://127.0.0.1:7077,192.0.2.7:7077",
    ],
)
def test_several_machines_need_a_zookeeper_that_all_reach(url: str) -> None:
    for zookeeper in ("", "embedded"):
        with pytest.raises(
            SetupError, match=r"several machines.*--zookeeper HOST:PORT/CHROOT.*--listen auto"
        ):
            check_machines(url, zookeeper)
    check_machines(url, "zk:2181/clicks")


@pytest.mark.parametrize(
    "url",
    ["", "local[2]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "spark://localhost:1"],
)
def test_one_machine_needs_none(url: str) -> None:
    check_machines(url, "")


def test_spark_connect_is_told_that_it_cannot_hold_workers() -> None:
    with pytest.raises(
        SetupError, match="a server of Spark Connect, which runs queries and cannot hold workers"
    ):
        check_master("sc://h:15002")
    assert "SPARK_REMOTE names a server of Spark Connect" in remote_note(
        "", {"SPARK_REMOTE": "sc://h"}
    )
    assert remote_note("spark://h:7077", {"SPARK_REMOTE": "sc://h"}) == remote_note("", {}) == ""
