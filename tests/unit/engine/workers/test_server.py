from __future__ import annotations

import threading
from typing import Any

import pytest

from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.ports import ShardWork
from millwheel.engine.workers.server import MasterReports, WorkerService


class Aborted(Exception):
    pass


class Context:
    def __init__(self) -> None:
        self.ends: list[Any] = []

    def add_callback(self, end: Any) -> None:
        self.ends.append(end)

    def cancel(self) -> None:
        for end in self.ends:
            end()

    def abort(self, code: Any, details: str) -> None:
        raise Aborted(code.name, details)


def test_a_record_is_answered_when_it_is_durable_with_what_became_of_it() -> None:
    def post(event: ev.Event) -> None:
        assert isinstance(event, ev.Injected)
        assert (event.stream, event.target, list(event.values), list(event.ids)) == (
            "hits",
            "s-0",
            [b"1"],
            ["a"],
        )
        event.answer(False, 1, 2, 3)

    request = pb.InjectRequest(
        stream="hits", target="s-0", records=[pb.InjectRecord(value=b"1", id="a")]
    )
    reply = WorkerService(post).Inject(request, Context())  # type: ignore[arg-type]
    assert (reply.moved, reply.accepted, reply.duplicates, reply.rejected) == (False, 1, 2, 3)


def test_a_record_without_an_id_is_refused_before_anything_is_done() -> None:
    request = pb.InjectRequest(stream="hits", target="s-0", records=[pb.InjectRecord(value=b"1")])
    with pytest.raises(Aborted, match="each record needs an id"):
        WorkerService(lambda event: pytest.fail("posted")).Inject(request, Context())  # type: ignore[arg-type]


def test_every_attached_master_hears_and_one_that_left_does_not() -> None:
    posted: list[ev.Event] = []
    service, contexts = WorkerService(posted.append), [Context(), Context()]
    lines = [service.Attach(pb.AttachRequest(master="m"), context) for context in contexts]  # type: ignore[arg-type]
    for line in lines:
        assert next(line) == pb.WorkerReport(), "at once: the master knows that it is heard"
    assert posted == [ev.MasterAttached(), ev.MasterAttached()]
    reports = MasterReports(service, lambda: 0.75)
    reports.released("s-0", 3, 9)
    assert [next(line).released[0].last_commit for line in lines] == [9, 9]
    reports.load([ShardWork("s-0", 3, 10, 500, (7,), 4_096)])
    told = pb.ShardLoad(
        shard="s-0", token=3, records=10, busy_us=500, sample=[7], state_bytes=4_096
    )
    assert [next(line) for line in lines] == [pb.WorkerReport(loads=[told], memory=0.75)] * 2
    contexts[0].ends[0]()
    assert list(lines[0]) == []


def test_traces_of_injected_records_come_with_them_and_nothing_where_none_has_one() -> None:
    posted: list[ev.Injected] = []

    def post(event: ev.Event) -> None:
        assert isinstance(event, ev.Injected)
        posted.append(event)
        event.answer(False, 1, 0, 0)

    for traces in (("", "00-x"), ("", "")):
        records = [
            pb.InjectRecord(value=b"1", id=f"{number}", trace=trace)
            for number, trace in enumerate(traces)
        ]
        request = pb.InjectRequest(stream="hits", target="s-0", records=records)
        WorkerService(post).Inject(request, Context())  # type: ignore[arg-type]
    assert [list(event.traces) for event in posted] == [["", "00-x"], []]


def test_a_master_that_takes_nothing_is_attached_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.engine.workers.server._MOST_REPORTS", 3)
    service = WorkerService(lambda event: None)
    taking, silent = (service.Attach(pb.AttachRequest(), Context()) for _ in range(2))  # type: ignore[arg-type]
    next(taking), next(silent)
    for number in range(5):
        service.send_to_masters(pb.WorkerReport(memory=number))
        assert next(taking).memory == number
    assert len(list(silent)) <= 3


def test_of_many_masters_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.engine.workers.server._MOST_LINES", 2)
    service = WorkerService(lambda event: None)
    lines = [service.Attach(pb.AttachRequest(), Context()) for _ in range(3)]  # type: ignore[arg-type]
    for line in lines:
        next(line)
    service.send_to_masters(pb.WorkerReport(memory=1))
    assert [next(line, None) for line in lines] == [
        None,
        pb.WorkerReport(memory=1),
        pb.WorkerReport(memory=1),
    ]


def test_injections_that_wait_leave_threads_for_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.engine.workers.server._MOST_INJECTIONS", 1)
    posted: list[ev.Injected] = []
    came = threading.Event()

    def post(event: ev.Event) -> None:
        assert isinstance(event, ev.Injected)
        posted.append(event)
        came.set()

    service = WorkerService(post)
    request = pb.InjectRequest(
        stream="hits", target="s-0", records=[pb.InjectRecord(value=b"1", id="a")]
    )
    waiting = threading.Thread(target=service.Inject, args=(request, Context()))
    waiting.start()
    assert came.wait(10)
    with pytest.raises(Aborted, match="too many requests wait"):
        service.Inject(request, Context())  # type: ignore[arg-type]
    posted[0].answer(False, 1, 0, 0)
    waiting.join()
    came.clear()
    again = threading.Thread(target=service.Inject, args=(request, Context()))
    again.start()
    assert came.wait(10)
    posted[1].answer(False, 1, 0, 0)
    again.join()
