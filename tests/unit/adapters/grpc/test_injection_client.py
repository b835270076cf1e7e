from __future__ import annotations

import socket
import threading
from typing import Any

import grpc
import pytest

from millwheel.adapters.grpc import injection_client
from millwheel.adapters.grpc.injection_client import InjectionClient, InjectionResult, OutsideRecord
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.errors import UnavailableError
from tests.unit.control.injector.test_server import Worker, serving, table


def test_what_became_of_batches_adds_up_and_one_that_moved_shows() -> None:
    total = InjectionResult(False, 3, 1, 0) + InjectionResult(True, 0, 0, 2)
    assert total == InjectionResult(True, 3, 1, 2)


class Channel:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_one_connection_serves_all_batches_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Channel] = []
    asked: list[Any] = []

    class Stub:
        def __init__(self, channel: Channel) -> None:
            pass

        def Inject(self, request: Any, timeout: float) -> Any:
            asked.append(request)
            return pb.InjectReply(accepted=len(request.records))

    def new_channel(address: str, security: Any) -> Channel:
        made.append(Channel())
        return made[-1]

    monkeypatch.setattr(injection_client, "new_channel", new_channel)
    monkeypatch.setattr(injection_client, "WorkerStub", Stub)
    client = InjectionClient()
    for _ in range(2):
        assert client.inject("w:1", "hits", "s-0", [OutsideRecord("a", b"1")]).accepted == 1
    assert [(r.stream, r.target, [(x.id, x.value) for x in r.records]) for r in asked] == [
        ("hits", "s-0", [("a", b"1")])
    ] * 2
    client.close()
    assert [channel.closed for channel in made] == [True]


def test_a_worker_that_does_not_answer_may_have_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, channel: Any) -> None:
            pass

        def Inject(self, request: Any, timeout: float) -> Any:
            raise grpc.RpcError("gone")

    monkeypatch.setattr(injection_client, "new_channel", lambda address, security: Channel())
    monkeypatch.setattr(injection_client, "WorkerStub", Broken)
    with pytest.raises(UnavailableError, match="the worker at w:1 did not take the records: gone"):
        InjectionClient().inject("w:1", "hits", "s-0", [])


# watermark_client.py: A worker's line to the watermark service.


def test_asking_where_nobody_listens_is_unavailable_not_a_trace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnavailableError, match="did not answer"):
        fetch_status(f"127.0.0.1:{port}")


def test_closing_ends_the_clients_threads() -> None:
    with serving(table(1)) as server:
        one = Worker(server.address)
        one.report("n-0", 1, 30)
        one.until(30)
        one.client.close()
        assert "injector-client" not in [thread.name for thread in threading.enumerate()]
