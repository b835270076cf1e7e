from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from millwheel.adapters.grpc import master_client
from millwheel.adapters.grpc.attach import WorkerLines, _is_refused
from millwheel.adapters.grpc.master_client import MasterClient
from millwheel.adapters.pb import master_pb2 as pb
from millwheel.errors import SetupError, UnavailableError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the master was asked; it takes moves of ``s-0`` and nothing else."""
    found: list[Any] = []

    class Stub:
        def __init__(self, channel: Any) -> None:
            pass

        def _answer(self, request: Any, timeout: float) -> pb.MoveReply:
            found.append(request)
            return pb.MoveReply(accepted=request.shard == "s-0", reason="it moves already")

        Move = Reshape = _answer

    monkeypatch.setattr(master_client, "MasterStub", Stub)
    return found


def test_what_is_wanted_is_asked_for(asked: list[Any]) -> None:
    client = MasterClient("127.0.0.1:1", None)
    client.move("n", "s-0", "w")
    client.split("n", "s-0", "80")
    client.merge("n", "s-0", "s-1")
    assert asked == [
        pb.MoveRequest(node="n", shard="s-0", worker="w"),
        pb.ReshapeRequest(node="n", shard="s-0", at="80"),
        pb.ReshapeRequest(node="n", shard="s-0", merge_with="s-1"),
    ]


def test_a_refusal_is_told_in_the_masters_words(asked: list[Any]) -> None:
    with pytest.raises(SetupError, match="The master refuses: it moves already"):
        MasterClient("127.0.0.1:1", None).move("n", "s-1", "w")


def test_a_master_that_does_not_answer_may_have_done_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnavailableError, match=f"the master at 127.0.0.1:{port} did not answer"):
        MasterClient(f"127.0.0.1:{port}", None).describe()


# attach.py: Only a refused connection is a death; whatever else breaks a line does not count as
# one.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_port_where_nobody_listens_refuses_and_one_that_is_silent_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not _is_refused(f"127.0.0.1:{server.getsockname()[1]}")
    assert _is_refused(f"127.0.0.1:{free_port()}")
    assert not _is_refused("no.such.host.invalid:1"), (
        "that nobody knows the name is not a word of the machine's"
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
    assert told == [("w1", f"nothing listens at {address} any more")]
    lines.close()
    lines.detach("w1")  # type: ignore[arg-type]
