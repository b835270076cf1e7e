"""A worker in memory: what its loop asks for happens later, one unit of work after the other."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.core.formats.codec import decode_value
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.tools.testing.memory.cluster import ClusterOptions, ManualClock
from millwheel.tools.testing.memory.storage import MemoryStorage
from millwheel.tools.testing.memory.worker import MemoryWorker, Work
from tests.unit.engine.workers.bench import ShardBench, Silent


class Cluster:
    """A cluster of two workers that does a unit of work when it is told to. ``steps`` are the
    events of each step of a loop, by worker; ``next_us`` is when a loop then wants to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(1_000)
        self.storage = MemoryStorage()
        self.options = ClusterOptions()
        self.graph = ShardBench(Silent).assembly.graph
        self.work: list[Work] = []
        self.steps: list[tuple[str, Sequence[ev.Event]]] = []
        self.next_us = MAX_TIME
        self.reports: list[Any] = []
        monkeypatch.setattr("millwheel.tools.testing.memory.worker.WorkerRuntime", self._runtime)
        me: Any = self
        self.workers = {
            name: MemoryWorker(me, name, number) for number, name in enumerate(("w0", "w1"))
        }

    def _runtime(self, name: str, *parts: Any) -> Any:
        def step(events: Sequence[ev.Event]) -> int:
            self.steps.append((name, events))
            return self.next_us

        return SimpleNamespace(step=step, stepped_at_us=self.clock.now_us())

    def make_shard(self) -> None: ...

    def worker(self, name: str) -> MemoryWorker:
        return self.workers[name]

    def do_later(self, work: Work) -> None:
        self.work.append(work)

    def reported(self, connection: int, by_node: Any) -> None:
        self.reports.append((connection, by_node))

    def one(self) -> None:
        """Do one unit of work."""
        self.work.pop(0)()

    def all(self) -> None:
        while self.work:
            self.one()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def send(record: dict[str, int]) -> Send:
    batch = Batch("events", [1], [5], ["a"], [record])
    return Send(ChannelName("up"), NodeName("work"), ShardName("work-0"), 1, 0, batch)


def test_events_wait_for_one_step_of_the_loop(cluster: Cluster) -> None:
    worker = cluster.worker("w0")
    for segment in (1, 2):
        worker.post(ev.GroupDurable(segment))
    assert (len(cluster.work), cluster.steps) == (1, [])
    cluster.one()
    assert cluster.steps == [("w0", [ev.GroupDurable(1), ev.GroupDurable(2)])]
    assert not cluster.work, "a loop with nothing to do is not stepped"


def test_a_loop_that_has_more_to_do_now_is_stepped_again(cluster: Cluster) -> None:
    cluster.next_us = cluster.clock.now_us()
    cluster.worker("w0").wake()
    cluster.one()
    assert len(cluster.work) == 1
    cluster.next_us = cluster.clock.now_us() + 1
    cluster.one()
    assert not cluster.work
    assert cluster.worker("w0").wakes_at_us == 1_001


def test_a_group_is_written_later_and_only_then_durable(cluster: Cluster) -> None:
    worker = cluster.worker("w0")
    assert worker.write_now([b"entry"]) is None, "a crash may come before each write"
    worker.submit([b"entry"])
    assert cluster.steps == []
    cluster.all()
    [(name, [durable])] = cluster.steps
    assert (name, type(durable)) == ("w0", ev.GroupDurable)


def test_a_delivery_travels_as_bytes_and_its_ack_comes_back(cluster: Cluster) -> None:
    sender = cluster.worker("w0")
    record = {"n": 0}
    sender.send("w1", Token(3), send(record))
    assert not cluster.work, "it leaves with the flush"
    sender.flush()
    sender.flush()
    record["n"] = 99  # as a callback may that goes on with its record
    cluster.one()
    cluster.one()
    [(name, [came])] = cluster.steps
    assert isinstance(came, ev.DeliveryCame)
    assert isinstance(came.batch, Batch)
    assert (name, came.target_token, came.index) == ("w1", 3, 0)
    assert decode_value(came.batch.values[0]) == {"n": 0}
    receiver = cluster.worker("w1")
    receiver.ack(came.reply_to, came.channel, came.target, came.epoch, came.index)
    receiver.refuse(came.reply_to, came.channel, came.target, came.epoch, moved=True)
    receiver.flush()
    cluster.all()
    assert cluster.steps[-1] == (
        "w0",
        [
            ev.AckCame(came.channel, came.target, 1, 0),
            ev.RefusalCame(came.channel, came.target, 1, True),
        ],
    )


def test_reports_come_by_the_connection_of_their_worker(cluster: Cluster) -> None:
    cluster.worker("w1").report({NodeName("work"): []})
    assert not cluster.reports
    cluster.all()
    assert cluster.reports == [(1, {"work": []})]
