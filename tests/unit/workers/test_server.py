from __future__ import annotations

from typing import Any

import pytest

from millwheel.pb import worker_pb2 as pb
from millwheel.workers import events as ev
from millwheel.workers.ports import ShardWork
from millwheel.workers.server import MasterReports, WorkerService


class Aborted(Exception):
    pass


class Context:
    def __init__(self) -> None:
        self.ends: list[Any] = []

    def add_callback(self, end: Any) -> None:
        self.ends.append(end)

    def abort(self, code: Any, details: str) -> None:
        raise Aborted(code.name, details)


def test_a_record_is_answered_when_it_is_durable_with_what_became_of_it() -> None:
    def post(event: ev.Event) -> None:
        assert isinstance(event, ev.Injected)
        assert (event.stream, event.target, list(event.values), list(event.ids)) == ("hits", "s-0", [b"1"], ["a"])
        event.answer(False, 1, 2, 3)

    request = pb.InjectRequest(stream="hits", target="s-0", records=[pb.InjectRecord(value=b"1", id="a")])
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
    told = pb.ShardLoad(shard="s-0", token=3, records=10, busy_us=500, sample=[7], state_bytes=4_096)
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
        records = [pb.InjectRecord(value=b"1", id=f"{number}", trace=trace) for number, trace in enumerate(traces)]
        request = pb.InjectRequest(stream="hits", target="s-0", records=records)
        WorkerService(post).Inject(request, Context())  # type: ignore[arg-type]
    assert [list(event.traces) for event in posted] == [["", "00-x"], []]
