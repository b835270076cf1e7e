"""What must always hold of a shard, the watermark service and the master: each is broken here, and
is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millwheel import Tumbling
from millwheel.api import Computation, Domain
from millwheel.control.injector.events import RangesChanged, ReportColumns, ReportsArrived
from millwheel.control.injector.state import InjectorState
from millwheel.control.master.events import TablesLoaded, WorkerUnreachable
from millwheel.control.master.state import MasterState
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.formats.store_layout import CHANNEL, PENDING, TIMER
from millwheel.core.model.names import NodeName, Token
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import IDLE_TIME, MAX_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.engine.workers.state.column_segments import validate_segments, write_segments
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError
from millwheel.testing import PipelineHarness, WindowHarness
from tests.fakes.plain_storage import SimStore
from tests.unit.control.master.test_state import config, members
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of
from tests.unit.engine.workers.bench import ShardBench

Break = Callable[[Any], None]


class Reminding(Computation):
    """Sets two timers per record and sends it on."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.set_timer("later", record.timestamp + 100)
        ctx.set_timer("much_later", record.timestamp + 200)
        ctx.produce("out", record.value)


def busy_shard() -> Any:
    """A shard with timers, deliveries that wait, commits in flight, and productions sent and
    unsent."""
    bench = ShardBench(Reminding)
    for key in ("ann", "bob"):
        bench.deliver((key, 1, 5), (key, 2, 6), channel=key)
        bench.run()
        bench.settle()
        bench.sends()
    bench.deliver(("cid", 3, 7), channel="cid")
    bench.run()
    bench.deliver(("dan", 4, 8), ("dan", 5, 9), channel="dan")
    bench.shard.validate()
    return bench.shard


def _lane(shard: Any) -> Any:
    return next(iter(shard.outbox._lanes.values()))


def _chunk(shard: Any) -> Any:
    return next(iter(shard.outbox.open.values()))


def _forget(family: bytes) -> Break:
    def forget(shard: Any) -> None:
        shard.store.apply([], [next(key for key, _ in shard.store.scan(family))])

    return forget


def _count(owner: str, name: str, by: int = 1) -> Break:
    def count(shard: Any) -> None:
        part = _lane(shard) if owner == "lane" else getattr(shard, owner)
        setattr(part, name, getattr(part, name) + by)

    return count


SHARDS: dict[str, tuple[Break, str]] = {
    "a timer that is stored nowhere": (_forget(TIMER), "only set"),
    "a timer that no heap has": (
        lambda s: s._timers[Domain.EVENT]._heap.clear(),
        "never comes due",
    ),
    "a timer that is looked for too late": (
        lambda s: setattr(s._timers[Domain.EVENT], "earliest", MAX_TIME),
        "it is looked for at",
    ),
    "a mark that is not stored": (_forget(CHANNEL), "is applied up to 0"),
    "a production that is not stored": (_forget(PENDING), "are not done, but"),
    "records counted twice": (_count("_inbox", "records"), "but are counted as"),
    "a delivery that holds nothing": (
        lambda s: setattr(s._inbox.waiting[0], "min_timestamp", 99),
        "behind its",
    ),
    "a delivery beyond its channel": (
        lambda s: setattr(s._inbox.waiting[0], "index", 7),
        "next is",
    ),
    "a mark below what waits": (
        lambda s: setattr(s._inbox._channels["dan"], "accepted", 1),
        "above 1",
    ),
    "an ack nobody waits for": (lambda s: _lane(s).unacked.popleft(), "is sent|counts|waits for"),
    "credit lost": (_count("lane", "unacked_weight"), "counts"),
    "an index left out": (_count("lane", "next_index"), "next is"),
    "an epoch of another owner": (_count("lane", "epoch", 1 << 64), "not in one of its owner"),
    "a lane nobody looks at": (
        lambda s: (s.outbox.restart("work-0", "out-0"), s.outbox.ready.clear()),
        "will not be looked at",
    ),
    "records in the wrong order": (lambda s: _lane(s).unacked.reverse(), "waits for acks"),
    "parts counted twice": (lambda s: setattr(_chunk(s), "open_parts", 9), "waits for 9 acks"),
    "a chunk that is done and open": (
        lambda s: setattr(_chunk(s), "finished", True),
        "holds the watermark",
    ),
    "a part of a chunk that is done": (lambda s: s.outbox.open.clear(), "which is done"),
    "weight in flight lost": (_count("outbox", "pending_weight"), "counted as"),
    "a commit left out": (_count("commits", "made"), "are in flight"),
    "a floor beyond the stored one": (_count("commits", "floor", 1 << 63), "the durable floor"),
    "a commit submitted too early": (
        lambda s: s.commits.unsubmitted.append(None),
        "before one that is with",
    ),
    "an urgent commit not counted": (_count("commits", "_urgent"), "are waited for"),
    "a floor that is not told": (lambda s: setattr(s.meta, "floor", 1 << 62), "the stored floor"),
}


@pytest.mark.parametrize("what", SHARDS)
def test_what_breaks_a_shard_is_noticed(what: str) -> None:
    shard = busy_shard()
    spoil, message = SHARDS[what]
    spoil(shard)
    with pytest.raises(InvariantError, match=message):
        shard.validate()


# --- windows --------------------------------------------------------------------------------------


def _cell(rows: Any) -> Any:
    return next(cell for cell in rows._cells._cells.values() if cell is not None)


PIPELINE = """
pipeline: windows
streams:
  words: {source: {injection: {}}, timestamp: t}
computations:
  counts:
    input: {words: {key: word}}
    window: {tumbling: 10us}
    aggregate: {n: count}
    output_time: earliest
    output: counted
sinks:
  counted: {files: {path: /nowhere}}
"""
ROWS: dict[str, tuple[Break, str]] = {
    "a cell that is not stored": (lambda rows: setattr(_cell(rows), "count", 7), "stored is"),
    "a cell that is only stored": (
        lambda rows: rows._cells._cells.update(dict.fromkeys(rows._cells._cells)),
        "None",
    ),
    "a cell that is not written": (
        lambda rows: rows._cells._dirty.update({("a", 1): None}),
        "not written",
    ),
    "a hold that is only in memory": (
        lambda rows: rows._holds._queue.set("a", "w", 3),
        "only in memory",
    ),
    "a timer of a share": (
        lambda rows: rows.share_timers._queue(0.9).set("a", "w", 3),
        "percentile watermarks",
    ),
}
COLUMNS: dict[str, tuple[Break, str]] = {
    "a segment that is not stored": (
        lambda windows: setattr(windows._segments[0], "number", 77),
        "stored are",
    ),
    "a segment that fires too late": (
        lambda windows: setattr(windows._segments[0], "first", 1 << 50),
        "is due from",
    ),
    "two segments of one name": (
        lambda windows: windows._segments.append(windows._segments[0]),
        "two segments",
    ),
}


@pytest.mark.parametrize("what", ROWS)
def test_what_breaks_windows_in_rows_is_noticed_as_the_harness_ends(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / "windows.yaml"
    path.write_text(PIPELINE)
    harness = PipelineHarness(path, shards=1, workers=1)
    harness.push("words", [{"word": "a", "t": 3}, {"word": "b", "t": 14}])
    [shard] = harness._cluster.shards_of("counts")
    spoil, message = ROWS[what]
    spoil(shard.operator)
    with pytest.raises(InvariantError, match=message):
        harness.close()


@pytest.mark.parametrize("what", COLUMNS)
def test_what_breaks_windows_in_columns_is_noticed(what: str) -> None:
    plan, store = plan_of(), SimStore({})
    assert plan is not None
    windows, overlay = ColumnWindows(plan), Overlay(store)
    windows.add(plan.group(batch_of([Row(1, "view", 1.0, 2, 3)])))
    write_segments(windows, "c-0", overlay)
    store.apply(*overlay.take())
    validate_segments([windows], "c-0", store)
    spoil, message = COLUMNS[what]
    spoil(windows)
    with pytest.raises(InvariantError, match=message):
        validate_segments([windows], "c-0", store)


# --- injector and master --------------------------------------------------------------------------

TABLE = RangeTable(
    "n",
    tuple(ShardEntry(f"n-{i}", piece, f"w{i + 1}", 1) for i, piece in enumerate(tile(2))),
    version=0,
)


def reported() -> Any:
    """An injector that has heard of one of two shards, by name and number, and of a shard that no
    table has."""
    state = InjectorState()
    state.handle(RangesChanged(TABLE))
    columns = ReportColumns.of([ShardReport("n-0", 1, 10), ShardReport("n-7", 1, 10)])
    state.handle(ReportsArrived(1, "n", columns, numbers=np.array([0, 1])))
    state.validate()
    return state._nodes["n"]


NODES: dict[str, tuple[Break, str]] = {
    "another token": (lambda node: node.index.tokens.fill(2), "the tokens of the table"),
    "a column too short": (
        lambda node: setattr(node.index, "reported", node.index.reported[:1]),
        "columns of the lengths",
    ),
    "rows of other shards": (
        lambda node: node.index.row_of.update({"n-0": 1, "n-1": 0}),
        "the rows of shards",
    ),
    "keys of nobody": (
        lambda node: setattr(node.index, "entries", node.index.entries[:1]),
        "has no range",
    ),
    "an idle shard that nobody heard": (
        lambda node: node.index.values.fill(IDLE_TIME),
        "counts as idle",
    ),
    "all reported and not complete": (lambda node: node.index.reported.fill(True), "not complete"),
    "published before all reported": (lambda node: setattr(node, "published", 5), "incomplete"),
    "a report nobody will look at": (
        lambda node: node._waiting.update({"n-1": node._waiting["n-7"]}),
        "waits for a",
    ),
    "a number of another shard": (
        lambda node: node._directories[1].rows.fill(1),
        "numbers stand for",
    ),
}


@pytest.mark.parametrize("what", NODES)
def test_what_breaks_the_tree_of_reports_is_noticed(what: str) -> None:
    node = reported()
    spoil, message = NODES[what]
    spoil(node)
    with pytest.raises(InvariantError, match=message):
        node.validate()


def mastered() -> Any:
    """A master of two workers, one of which is dead; its journal is being sealed."""
    state = MasterState(config(2))
    state.handle(TablesLoaded(tables=(replace(TABLE, computation=NodeName("traffic")),)))
    state.handle(members("w1", "w2"))
    state.handle(WorkerUnreachable(incarnation="w1", reason="refused"))
    state.validate()
    return state


MASTERS: dict[str, tuple[Break, str]] = {
    "an owner counted twice": (
        lambda master: master._holdings._owned.update(["w1"]),
        "shards are owned by",
    ),
    "an ancestor not counted": (
        lambda master: master._holdings._mentioned.clear(),
        "but counted is",
    ),
    "facts of another table": (
        lambda master: master._holdings._facts.clear(),
        "the kept facts of the range tables",
    ),
    "a token that goes back": (
        lambda master: master._holdings.writing.update(traffic=_older(master)),
        "went back",
    ),
    "a death without a reason": (
        lambda master: master._membership._reasons.clear(),
        "reasons have",
    ),
    "a living worker sealed": (
        lambda master: master._membership._sealing.add("w2"),
        "of the living",
    ),
    "a journal sealed twice": (
        lambda master: master._membership._dead.update(w1=5),
        "are being sealed",
    ),
    "a member removed early": (
        lambda master: master._membership._removing.add("w1"),
        "before their journals",
    ),
    "an owner that never was": (
        lambda master: master._membership._members.pop("w2"),
        "neither live nor are dead",
    ),
}


def _older(master: Any) -> RangeTable:
    table = master._holdings.stored["traffic"]
    return replace(table, shards=tuple(replace(entry, token=Token(0)) for entry in table.shards))


@pytest.mark.parametrize("what", MASTERS)
def test_what_breaks_a_master_is_noticed(what: str) -> None:
    master = mastered()
    spoil, message = MASTERS[what]
    spoil(master)
    with pytest.raises(InvariantError, match=message):
        master.validate()


# --- one window -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda harness: harness._timers[Domain.EVENT].cancel("k", "w:10"), "no timer"),
        (lambda harness: harness._states.clear(), "no state"),
    ],
    ids=["a window nobody closes", "a timer of nothing"],
)
def test_what_breaks_a_window_is_noticed_as_panes_are_taken(spoil: Break, message: str) -> None:
    harness = WindowHarness(Tumbling(10))
    harness.push("k", 1, 3)
    for _, tag, _ in harness.timers("k"):
        harness.take()
        if message == "no timer":
            harness._timers[Domain.EVENT].cancel("k", tag)
    spoil(harness)
    with pytest.raises(InvariantError, match=message):
        harness.take()
