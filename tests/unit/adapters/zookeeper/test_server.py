"""What is decided before a ZooKeeper is started: its folder, its port, its jars."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.zookeeper.server import (
    _LOG_LIMIT_BYTES,
    EmbeddedZooKeeper,
    _classpath,
    _limit,
)
from millwheel.errors import SetupError


def test_two_servers_never_have_the_same_data(tmp_path: Path) -> None:
    one, other = (EmbeddedZooKeeper(str(tmp_path), ["java"]) for _ in range(2))
    one._prepare()
    with pytest.raises(SetupError, match="Another run uses the ZooKeeper data"):
        other._prepare()
    one.stop()
    other._prepare()
    other.stop()


def test_a_server_comes_back_at_its_port_unless_somebody_took_it(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(str(tmp_path), ["java"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "port").write_text(f"{port}\n")
        assert server._choose_port() != port
        assert EmbeddedZooKeeper(str(tmp_path), ["java"], port=port)._choose_port() == port, (
            "it was asked for"
        )
    assert server._choose_port() == port


def test_a_machine_without_java_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millwheel.adapters.zookeeper.server._classpath", lambda: "jars")
    server = EmbeddedZooKeeper(str(tmp_path), ["no-such-java"])
    with pytest.raises(SetupError, match=r"Cannot start Java for ZooKeeper \(no-such-java\)"):
        server.start()
    assert (server.alive(), server.pid) == (False, None)


def test_without_jars_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[spark\]'"):
        _classpath()


def test_a_log_that_has_grown_large_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "zookeeper.log"
    _limit(log)
    with log.open("wb") as file:
        file.truncate(_LOG_LIMIT_BYTES)
    _limit(log)
    assert log.exists()
    with log.open("ab") as file:
        file.write(b"x")
    _limit(log)
    assert not log.exists()
    assert log.with_suffix(".log.old").exists()
