from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest

from millwheel.adapters.coordinator import LOCAL, LocalCoordination
from millwheel.control.coordinator.server import CoordinatorServer
from millwheel.core.formats.coordinator_messages import Get, encode
from millwheel.errors import UnavailableError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CoordinatorServer]:
    made = CoordinatorServer(tmp_path / "coordinator.db")
    made.start()
    yield made
    made.stop()


def eventually(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.002)


def test_who_does_not_show_the_token_is_hung_up_on(tmp_path: Path) -> None:
    server = CoordinatorServer(tmp_path / "coordinator.db", "token-of-the-run")
    server.start()
    try:
        ours = LocalCoordination(server.address, token="token-of-the-run")
        for token in ("", "token-of-another"):
            stranger = LocalCoordination(server.address, token=token)
            with pytest.raises(UnavailableError):
                stranger.put_if_absent("instance", b"theirs")
            stranger.close()
        assert ours.get("instance") is None
        ours.close()
    finally:
        server.stop()


def test_who_does_not_say_hello_is_answered_nothing(tmp_path: Path) -> None:
    server = CoordinatorServer(tmp_path / "coordinator.db", "token-of-the-run")
    server.start()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(server.address.removeprefix(LOCAL))
            message = encode(Get(1, "instance"))
            stranger.sendall(pack("<I", len(message)) + message)
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
    finally:
        server.stop()


def test_who_does_not_speak_the_protocol_is_hung_up_on_and_disturbs_nobody(
    server: CoordinatorServer,
) -> None:
    session = LocalCoordination(server.address)
    for nonsense in (pack("<I", 5) + b"hello", pack("<I", 1 << 31), pack("<I", 1) + b"\xc1"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(server.address.removeprefix(LOCAL))
            stranger.sendall(nonsense)
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
    assert session.tables() == {}
    session.close()


def test_other_users_cannot_come_near_the_socket(server: CoordinatorServer) -> None:
    folder = Path(server.address.removeprefix(LOCAL)).parent
    assert folder.stat().st_mode & 0o077 == 0


def test_a_stopped_server_leaves_no_folder_and_may_be_stopped_again(
    server: CoordinatorServer,
) -> None:
    folder = Path(server.address.removeprefix(LOCAL)).parent
    server.stop()
    server.stop()
    assert not folder.exists()


def test_many_sessions_watch_and_write_at_the_same_time(server: CoordinatorServer) -> None:
    sessions = [LocalCoordination(server.address) for _ in range(8)]
    seen: list[dict[str, bytes]] = []
    sessions[0].watch_members("workers", lambda members: seen.append(dict(members)))
    threads = [
        threading.Thread(target=session.join, args=("workers", f"w.{number}", b"x"))
        for number, session in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: seen and len(seen[-1]) == 8)
    for session in sessions:
        session.close()
