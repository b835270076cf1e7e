"""The queue and the machine that hears it, joined in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.grpc import node_reports
from millwheel.adapters.grpc.node_reports import NodeReports
from millwheel.adapters.grpc.watermark_client import ReportQueue
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.events import NumbersReported, ReportsArrived
from millwheel.control.injector.node import NodeState
from millwheel.control.injector.wire import read_frame
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport


def said(frames: list[pb.ReportFrame]) -> list[str]:
    """Each report in words, by number where it is."""
    words = []
    for event in (event for frame in frames for event in read_frame(1, frame)):
        if isinstance(event, ReportsArrived):
            rows = map(event.reports.row, range(len(event.reports.shards)))
            words += [
                f"{event.node} {r.shard}/{r.token} {r.watermark_us} {r.holder}"
                f" {dict(r.counters) or ''}".strip()
                for r in rows
            ]
        if isinstance(event, NumbersReported):
            pairs = zip(event.numbers.tolist(), event.watermarks.tolist(), strict=True)
            words += [f"{event.node} #{number} {us}" for number, us in pairs]
    return words


def test_only_the_newest_report_of_a_shard_is_sent_and_once() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 1, 10), ShardReport("counts-1", 1, 10)])
    queue.put("counts", [ShardReport("counts-0", 1, 20)])
    assert said(queue.take()) == ["counts counts-0/1 20", "counts counts-1/1 10"]
    assert not queue.waiting()
    assert queue.take() == []


def test_a_report_that_changes_nothing_but_the_watermark_goes_by_number() -> None:
    queue = ReportQueue()
    queue.put(
        "counts", [ShardReport("counts-0", 1, 10, "input"), ShardReport("counts-1", 1, 10, "input")]
    )
    queue.take()
    queue.put("counts", [ShardReport("counts-1", 1, 20, "input")])
    assert said(queue.take()) == ["counts #1 20"]


def test_a_report_with_another_holder_token_totals_or_with_shares_is_spelled_out() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 1, 10, "input", {"in": 5})])
    queue.take()
    for report, words in [
        (ShardReport("counts-0", 1, 11, "timer", {"in": 5}), "counts counts-0/1 11 timer"),
        (
            ShardReport("counts-0", 1, 11, "timer", {"in": 6}),
            "counts counts-0/1 11 timer {'in': 6}",
        ),
        (ShardReport("counts-0", 2, 11, "timer"), "counts counts-0/2 11 timer"),
        (ShardReport("counts-0", 2, 11, "timer", shares={0.5: 12}), "counts counts-0/2 11 timer"),
        (ShardReport("counts-0", 2, 12, "timer", shares={0.5: 12}), "counts counts-0/2 12 timer"),
        (ShardReport("counts-0", 2, 13, "timer"), "counts #0 13"),
    ]:
        queue.put("counts", [report])
        assert said(queue.take()) == [words]


def test_a_new_session_says_everything_again_with_totals() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 1, 10, "input", {"in": 5})])
    assert said(queue.take()) == ["counts counts-0/1 10 input {'in': 5}"]
    queue.put("counts", [ShardReport("counts-0", 1, 11, "input", {"in": 5})])
    assert said(queue.take()) == ["counts #0 11"]
    queue.begin()
    assert said(queue.take()) == ["counts counts-0/1 11 input {'in': 5}"]


def test_samples_are_sent_once_and_never_too_many() -> None:
    queue = ReportQueue()
    queue.put("sink", [ShardReport("sink-0", 1, 10)])
    queue.take()
    for _ in range(3):
        queue.put("sink", [ShardReport("sink-0", 1, 11, latencies_ms=[1.0] * 900)])
    (frame,) = queue.take()
    assert len(frame.nodes[0].latencies_ms) == 1_000
    queue.begin()
    assert not queue.take()[0].nodes[0].latencies_ms


def test_what_left_or_is_older_is_not_reported() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 2, 10), ShardReport("counts-1", 1, 10)])
    queue.put("counts", [ShardReport("counts-0", 1, 99)])
    queue.forget("counts-1")
    assert said(queue.take()) == ["counts counts-0/2 10"]
    queue.begin()
    assert said(queue.take()) == ["counts counts-0/2 10"]


def test_totals_of_the_owner_before_are_not_reported_as_those_of_the_next() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 1, 10, counters={"in": 7})])
    queue.put("counts", [ShardReport("counts-0", 2, 10)])
    assert said(queue.take()) == ["counts counts-0/2 10"]


def test_the_number_of_a_shard_that_left_is_given_again_with_a_name() -> None:
    queue = ReportQueue()
    queue.put("counts", [ShardReport("counts-0", 1, 10)])
    queue.take()
    queue.forget("counts-0")
    queue.put("counts", [ShardReport("counts-7", 1, 5)])
    assert said(queue.take()) == ["counts counts-7/1 5"]
    queue.put("counts", [ShardReport("counts-7", 1, 6)])
    assert said(queue.take()) == ["counts #0 6"]


def test_one_message_has_all_nodes_and_many_reports_are_several_messages() -> None:
    queue = ReportQueue()
    queue.put("a", [ShardReport("a-0", 1, 10)])
    queue.put("b", [ShardReport("b-0", 1, 10)])
    assert len(queue.take()) == 1
    count = 2 * node_reports._MAX_CHANGED + 1
    queue.put("c", [ShardReport(f"c-{position}", 1, 10, "input") for position in range(count)])
    named = queue.take()
    assert len(said(named)) == count
    assert max(frame.ByteSize() for frame in named) < 2**22
    queue.node("c").change(np.arange(count), np.full(count, 20))
    changed = queue.take()
    assert len(changed) == 3
    assert said(changed)[-1] == f"c #{count - 1} 20"


# --- any history, against what was reported last

SHARDS = 4


@dataclass
class Line:
    """A worker's queue, the service's node, and what each shard of the worker has reported last."""

    queue: ReportQueue = field(default_factory=ReportQueue)
    node: NodeState = field(default_factory=NodeState)
    connection: int = 1
    version: int = -1
    tokens: list[int] = field(default_factory=lambda: [1] * SHARDS)
    newest: dict[int, ShardReport] = field(default_factory=dict)

    def table(self, position: int) -> None:
        """The shard is lost and comes back under the next token."""
        self.queue.forget(f"n-{position}")
        self.newest.pop(position, None)
        self.tokens[position] += 1
        self.store()

    def store(self) -> None:
        self.version += 1
        rows = zip(tile(SHARDS), self.tokens, strict=True)
        entries = tuple(
            ShardEntry(f"n-{position}", part, "w", token)
            for position, (part, token) in enumerate(rows)
        )
        self.node.table_changed(RangeTable("n", entries, self.version))

    def put(self, position: int, words: tuple[int, str, int]) -> None:
        rise, holder, total = words
        before = self.newest.get(position)
        known = before.watermark_us if before else 0
        us = IDLE_TIME if holder == "idle" else rise if known == IDLE_TIME else known + rise
        self.newest[position] = ShardReport(
            f"n-{position}", self.tokens[position], us, holder, {"in": total}
        )
        self.queue.put("n", [self.newest[position]])

    def connect(self) -> None:
        self.node.disconnected(self.connection)
        self.connection += 1
        self.queue.begin()

    def send(self) -> None:
        for event in (
            event for frame in self.queue.take() for event in read_frame(self.connection, frame)
        ):
            if isinstance(event, ReportsArrived):
                self.node.reported(self.connection, event.reports, event.numbers)
            elif isinstance(event, NumbersReported):
                self.node.reported_by_number(self.connection, event.numbers, event.watermarks)

    def check(self) -> None:
        index = self.node.index
        for position, report in self.newest.items():
            assert (int(index.tokens[position]), index.holders[position]) == (
                report.token,
                report.holder,
            )
            assert index.counters[position] == report.counters
            assert index.values[position] >= report.watermark_us
            assert index.confirmed_to[position] == self.connection
        assert self.node.stale_reports == 0


PLACES = st.integers(0, SHARDS - 1)
WORDS = st.tuples(st.integers(0, 3), st.sampled_from(["input", "timer", "idle"]), st.integers(1, 2))
STEPS = st.one_of(
    st.tuples(st.just("put"), PLACES, WORDS),
    st.tuples(st.just("put"), PLACES, WORDS),
    st.tuples(st.just("send")),
    st.tuples(st.just("send")),
    st.tuples(st.just("table"), PLACES),
    st.tuples(st.just("connect")),
)


@given(st.lists(STEPS, max_size=60))
def test_the_service_knows_what_every_shard_has_reported_last(
    steps: list[tuple[object, ...]],
) -> None:
    line = Line()
    line.store()
    for name, *arguments in steps:
        getattr(line, str(name))(*arguments)
    line.send()
    line.check()


def test_a_table_that_comes_later_does_not_lose_what_was_reported_by_number() -> None:
    line = Line()
    line.tokens[0] = 2
    line.put(0, (10, "input", 1))
    line.send()
    line.put(0, (5, "input", 1))
    line.send()
    line.store()
    line.check()
    assert line.node.index.values[0] == 15


def test_a_shard_that_is_no_longer_idle_is_known_lower_again() -> None:
    line = Line()
    line.store()
    line.put(0, (0, "idle", 1))
    line.send()
    line.put(0, (7, "input", 1))
    line.send()
    assert line.node.index.values[0] == 7


# node_reports.py: Which reports are spelled out, and which go by number.


def sent(reports: NodeReports, *given: ShardReport) -> list[tuple[list[str], list[int]]]:
    """The shards that are spelled out, with how far silence has moved them, after these reports."""
    reports.put(given)
    return [(list(part.shards), list(part.idle_us)) for part in reports.take()]


def test_a_shard_is_spelled_out_once_and_then_goes_by_number() -> None:
    reports = NodeReports("n")
    assert sent(reports, ShardReport("a", 1, 10)) == [(["a"], [MIN_TIME])]
    assert sent(reports, ShardReport("a", 1, 20)) == [([], [])]


def test_how_far_silence_has_moved_a_shard_is_spelled_out_whenever_it_changes() -> None:
    reports = NodeReports("n")
    sent(reports, ShardReport("a", 1, 10))
    assert sent(reports, ShardReport("a", 1, IDLE_TIME, idle_us=50)) == [(["a"], [50])]
    assert sent(reports, ShardReport("a", 1, IDLE_TIME, idle_us=60)) == [(["a"], [60])]
    assert sent(reports, ShardReport("a", 1, 70)) == [(["a"], [MIN_TIME])]
