"""One node at the watermark service: nothing is said before every shard was heard, and nothing
falls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.injector.events import ReportColumns
from millwheel.control.injector.node import NodeState
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.watermark import ShardReport


def table(version: int, *tokens: int) -> RangeTable:
    entries = [
        ShardEntry(f"n-{i}", piece, "w", tokens[i]) for i, piece in enumerate(tile(len(tokens)))
    ]
    return RangeTable("n", tuple(entries), version)  # type: ignore[arg-type]


def report(shard: int, token: int, at: int) -> ReportColumns:
    return ReportColumns.of([ShardReport(f"n-{shard}", token, at, "input", {})])  # type: ignore[arg-type]


def test_nothing_is_published_before_every_shard_was_heard() -> None:
    node = NodeState()
    node.table_changed(table(1, 1, 1))
    assert node.reported(1, report(0, 1, 50)) == {"n-0": 1}
    assert node.publish() is None
    node.reported(1, report(1, 1, 30))
    assert node.publish() == 30
    assert node.publish() is None, "nothing has risen since"


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 99)), max_size=30))
def test_what_is_published_only_rises_and_never_passes_what_the_owners_said(
    steps: list[tuple[int, int, int]],
) -> None:
    node, highest, published = NodeState(), {0: -1, 1: -1}, -1
    node.table_changed(table(1, 2, 2))
    for shard, token, at in steps:
        node.reported(1, report(shard, token, at))
        if token == 2:
            highest[shard] = max(highest[shard], at)
        found = node.publish()
        if found is not None:
            assert published < found <= min(highest.values())
            published = found


def test_a_report_that_is_ahead_of_the_table_waits_and_a_zombies_does_not() -> None:
    node = NodeState()
    node.table_changed(table(1, 5))
    assert node.reported(1, report(0, 6, 70)) == {}
    assert node.reported(2, report(0, 4, 90)) == {}
    assert node.stale_reports == 1
    assert node.table_changed(table(2, 6)) == {1: {"n-0": 6}}
    assert node.publish() == 70


def test_an_old_table_is_old_news() -> None:
    node = NodeState()
    node.table_changed(table(3, 2))
    node.table_changed(table(2, 1))
    assert node.reported(1, report(0, 2, 1)) == {"n-0": 2}
