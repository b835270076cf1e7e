from __future__ import annotations

import socket
from typing import Any

import pytest

from millwheel.adapters.grpc import master_client
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
