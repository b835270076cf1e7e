"""The coordination port over the embedded coordinator: a session lives, and is lost."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.coordinator import LOCAL, LocalCoordination
from millwheel.adapters.durable_store import open_journals, open_snapshots, open_space
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.control.coordinator.server import CoordinatorServer
from millwheel.errors import SetupError, UnavailableError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CoordinatorServer]:
    made = CoordinatorServer(tmp_path / "coordinator.db")
    made.start()
    yield made
    made.stop()


def test_a_session_lives_on_while_nothing_is_asked(server: CoordinatorServer) -> None:
    lost = threading.Event()
    session = LocalCoordination(server.address, session_timeout_s=0.2)
    session.on_lost(lost.set)
    assert not lost.wait(1.0)
    session.put_if_absent("instance", b"x")
    session.close()


def test_a_session_whose_server_is_gone_is_lost_at_once(server: CoordinatorServer) -> None:
    lost = threading.Event()
    session = LocalCoordination(server.address, session_timeout_s=30)
    session.on_lost(lost.set)
    server.stop()
    assert lost.wait(5)
    with pytest.raises(UnavailableError, match="is lost"):
        session.tables()
    session.close()


def test_only_who_is_part_of_the_run_complains_of_its_end(
    server: CoordinatorServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watcher, worker = LocalCoordination(server.address), LocalCoordination(server.address)
    gone = threading.Barrier(3)
    for session in (watcher, worker):
        session.on_lost(gone.wait)
    watcher.watch_members("workers", lambda members: None)
    worker.join("workers", "w1", b"")
    server.stop()
    gone.wait(10)
    levels = sorted(each.levelno for each in caplog.records if "is lost" in each.message)
    assert levels == [logging.INFO, logging.ERROR]
    watcher.close()
    worker.close()


def test_a_server_that_answers_nothing_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(path))
        mute.listen()
        lost = threading.Event()
        session = LocalCoordination(f"{LOCAL}{path}", session_timeout_s=0.2)
        session.on_lost(lost.set)
        with pytest.raises(UnavailableError):
            session.tables()
        assert lost.wait(5)
        session.close()


def test_nobody_serves_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No coordinator answers"):
        open_coordination(f"{LOCAL}{tmp_path}/none", "visits")


# coordination.py


def test_the_address_says_which_service_it_is(tmp_path: Path) -> None:
    server = CoordinatorServer(tmp_path / "coordinator.db")
    server.start()
    session = open_coordination(server.address, "p")
    assert isinstance(session, LocalCoordination)
    session.close()
    server.stop()


@pytest.mark.parametrize("address", ["nothing", "host", "host:x", "a:1/b c", ""])
def test_what_is_no_address_is_told_before_anything_is_tried(address: str) -> None:
    with pytest.raises(SetupError, match="is not of the form host:port"):
        open_coordination(address, "p")


def test_a_coordinator_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="It lives in the process of `millwheel run`"):
        open_coordination(f"{LOCAL}{tmp_path}/none", "p")


# durable_store.py


def test_a_path_is_a_folder_and_journals_and_snapshots_lie_in_it(tmp_path: Path) -> None:
    assert isinstance(open_space(str(tmp_path)), FolderSpace)
    open_journals(str(tmp_path)).create("w1").close()
    (tmp_path / "scratch").mkdir()
    assert open_snapshots(str(tmp_path), str(tmp_path / "scratch" / "x")).latest("s-0") is None  # type: ignore[arg-type]
    assert (tmp_path / "journal" / "w1").is_dir()


def test_an_object_store_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(
        SetupError, match=r"need the package obstore; .*pip install 'millwheel-spark\[s3\]'"
    ):
        open_space("s3://bucket/prefix").names("s3://bucket/prefix")
