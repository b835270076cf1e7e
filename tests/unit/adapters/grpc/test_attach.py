"""Only a refused connection is a death; whatever else breaks a line does not count as one."""

from __future__ import annotations

import socket
import threading

from millwheel.adapters.grpc.attach import WorkerLines, _is_refused


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_port_where_nobody_listens_refuses_and_one_that_is_silent_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not _is_refused(f"127.0.0.1:{server.getsockname()[1]}")
    assert _is_refused(f"127.0.0.1:{free_port()}")
    assert not _is_refused("no.such.host.invalid:1"), (
        "that nobody knows the name is no word of the machine's"
    )


def test_a_worker_that_is_gone_is_told_dead_with_its_address() -> None:
    dead, told = threading.Event(), list[tuple[str, str]]()

    def on_dead(incarnation: str, reason: str) -> None:
        told.append((incarnation, reason))
        dead.set()

    lines = WorkerLines("m", lambda *_: None, on_dead)
    address = f"127.0.0.1:{free_port()}"
    lines.attach("w1", address)  # type: ignore[arg-type]
    assert dead.wait(10)
    assert told == [("w1", f"nobody listens at {address} any more")]
    lines.close()
    lines.detach("w1")  # type: ignore[arg-type]
