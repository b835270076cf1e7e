"""The step of the loop: which events count, and in which order what they ask for is done."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millwheel.core.formats.codec import decode_commit
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.loop.pace import RuntimeLimits
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.errors import FencedError
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.bench import Counting, Dial, ShardBench, Silent
from tests.unit.engine.workers.loop.stand import ME, table


class Worker:
    """A runtime that serves ``work-0`` under a token; everything outside of it is a note in
    ``done``."""

    def __init__(
        self,
        token: int = 1,
        inline: bool = False,
        dial: Dial | None = None,
        few: int = RuntimeLimits().few,
    ) -> None:
        self.done: list[Any] = []
        self.journal: list[Sequence[bytes]] = []
        self.inline = inline
        bench = ShardBench(Counting, dial) if dial else ShardBench(Silent)
        ports: Any = SimpleNamespace(
            clock=bench.clock,
            tracing=None,
            **dict.fromkeys(
                (
                    "transport",
                    "journal",
                    "recoveries",
                    "snapshots",
                    "reports",
                    "master",
                    "savepoints",
                    "followers",
                    "copies",
                ),
                cast("Any", self),
            ),
        )
        self.runtime = WorkerRuntime(
            WorkerName(ME),
            bench.assembly.graph,
            bench.assembly.make_shard,
            ports,
            RuntimeLimits(few),
        )
        tables = [
            table(node, (ME if node == "work" else "w9", token))
            for node in bench.assembly.graph.nodes
        ]
        self.runtime.step(
            [ev.WorkersChanged({ME: "here", "w9": "there"}), *map(ev.TableChanged, tables)]
        )
        [self.entry] = [each.shards[0] for each in tables if each.computation == "work"]
        store: Any = SimStore({})
        self.runtime.step([ev.ShardRecovered(self.entry, NodeName("work"), store)])
        self.runtime.step([ev.TokenKnown(ShardName("work-0"), Token(token))])

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.done.append((name, *given))

    def segments(self) -> Sequence[int]:
        return []

    def submit(self, entries: Sequence[bytes]) -> None:
        self.done.append(("submit",))
        self.journal.append(entries)

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        if not self.inline:
            return None
        self.done.append(("write_now",))
        self.journal.append(entries)
        return 1

    def calls(self) -> list[str]:
        return [call[0] for call in self.done]

    def is_asked(self) -> bool:
        """Whether its shard is asked for work in the next step."""
        return self.runtime._served[ShardName("work-0")].changed


def delivery(index: int = 0) -> ev.Event:
    batch = Batch("events", [index + 1], [5], ["a"], [1])
    return ev.DeliveryCame(
        "up", NodeName("work"), ShardName("work-0"), Token(1), 1, index, batch, "peer"
    )


def test_a_delivery_is_acked_when_its_commit_is_durable_and_not_before() -> None:
    worker = Worker()
    worker.runtime.step([delivery()])
    assert [decode_commit(entry).number for [entry] in worker.journal] == [1]
    assert "ack" not in worker.calls()
    worker.runtime.step([ev.GroupDurable(1)])
    assert [call for call in worker.done if call[0] == "ack"] == [
        ("ack", "peer", "up", "work-0", 1, 0)
    ]


def test_only_arrivals_make_a_shard_be_asked_again_while_the_journal_writes() -> None:
    worker = Worker()
    worker.runtime.step([delivery()])
    assert not worker.is_asked(), "it waits for its commit, which is an event"
    worker.runtime.step([delivery(1)])
    assert (worker.is_asked(), len(worker.journal)) == (True, 1), "a commit of its own can wait"
    worker.runtime.step([ev.GroupDurable(1)])
    assert (worker.is_asked(), len(worker.journal)) == (False, 2)


def test_a_broadcast_wakes_only_the_shards_that_it_tells_something() -> None:
    worker = Worker()
    served = worker.runtime._served[ShardName("work-0")]
    [feeder] = worker.runtime._graph.feeders[NodeName("work")]
    worker.runtime.step([ev.WatermarksRose({feeder: 1})])
    worker.runtime.step([])
    told = []
    for watermarks in ({"sink.out": 9}, {feeder: 1}, {feeder: 2}):
        served.last.news = False
        worker.runtime._watermarks_rose(ev.WatermarksRose(watermarks), 0)
        told.append((worker.is_asked(), served.last.news))
    assert told == [(False, False), (False, False), (True, True)]


def test_a_journal_that_answers_at_once_saves_a_step() -> None:
    worker = Worker(inline=True)
    worker.runtime.step([delivery()])
    calls = worker.calls()
    assert calls.index("write_now") < calls.index("ack")


def test_what_a_group_lets_go_shares_a_frame_with_others_unless_nothing_may_wait() -> None:
    for few, before in ((0, ["flush"]), (1, [])):
        worker = Worker(inline=True, dial=Dial(), few=few)
        worker.done.clear()
        worker.runtime.step([delivery()])
        assert worker.calls() == [*before, "write_now", "ack", "send", "flush"]


@pytest.mark.parametrize(("token", "heard"), [(1, False), (2, True), (3, False)])
def test_work_that_was_done_aside_is_told_to_the_owner_that_asked_for_it(
    token: int, heard: bool
) -> None:
    """A later owner has published by itself, and an earlier one speaks of commits that are not
    ours."""
    worker, told = Worker(token=2), list[int]()
    worker.runtime.step([ev.WorkDone(ShardName("work-0"), Token(token), told.append)])
    assert bool(told) is heard
    worker.runtime.step([ev.WorkDone(ShardName("gone-0"), Token(2), told.append)])
    assert len(told) == heard


def test_whoever_stops_runs_nothing_more_and_is_done_when_all_is_durable() -> None:
    worker = Worker()
    worker.runtime.step([delivery()])
    worker.runtime.step([ev.StopAsked()])
    assert not worker.runtime.finished()
    worker.runtime.step([ev.GroupDurable(1)])
    assert worker.runtime.finished()


def test_a_lost_session_and_a_failed_journal_end_the_worker() -> None:
    with pytest.raises(FencedError, match="w0 lost its ZooKeeper session"):
        Worker().runtime.step([ev.SessionLost()])
    with pytest.raises(OSError, match="disk"):
        Worker().runtime.step([ev.JournalFailed(cast("Any", OSError("disk")))])


def test_a_worker_with_nothing_to_do_sleeps_until_its_next_report() -> None:
    worker = Worker()
    wakes_at = worker.runtime.step([])
    now = worker.runtime.step([]) and cast("Any", worker.runtime)._clock.now_us()
    assert now < wakes_at


def test_an_ack_is_not_counted_later_than_the_work_that_it_may_have_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    runtime = Worker().runtime
    monkeypatch.setattr(
        runtime, "_traffic", SimpleNamespace(acked=lambda event, at_us: told.append(at_us) or [])
    )
    ack = ev.AckCame(ChannelName("work-0"), ShardName("next-0"), 1, 0)
    runtime._apply(ack, 5_000_000)
    runtime._busy_us = 400_000
    runtime._apply(ack, 5_000_000)
    assert told == [5_000_000, 4_600_000]


def test_the_end_of_a_shard_is_reported_with_its_last_ack_and_its_end_alone() -> None:
    """Everybody behind it waits for that."""
    worker = Worker(inline=True, dial=Dial())
    every = dict.fromkeys(worker.runtime._graph.nodes, MAX_TIME)
    worker.runtime.step([delivery()])
    [sent] = [call[3] for call in worker.done if call[0] == "send"]
    worker.runtime.step([ev.WatermarksRose(every)])
    worker.done.clear()
    worker.runtime.step([])
    assert "report" not in worker.calls()  # it is not its time yet
    worker.runtime.step([ev.AckCame(sent.channel, sent.target, sent.epoch, sent.index)])
    [told] = [call[1] for call in worker.done if call[0] == "report"]
    assert [report.watermark_us for reports in told.values() for report in reports] == [MAX_TIME]
    worker.done.clear()
    worker.runtime.step([])
    assert "report" not in worker.calls()
