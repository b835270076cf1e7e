from __future__ import annotations

from typing import Any

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import stream_decoder
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Sliding, Tumbling, Window
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.row_groups import RowGrouping, cost, received

COUNTS = compile_aggregation(
    [AggregateSpec("n", "count", ""), AggregateSpec("s", "sum", "x")],
    compile_expression,
    condition="x != 7",
)


def grouping(most: int = 10_000) -> RowGrouping:
    return RowGrouping(
        NodeName("n"), Tumbling(10), COUNTS, lambda batch: None, stream_decoder({}), most
    )


def batch(*records: tuple[str, Any, int]) -> Batch:
    keys, values, times = map(list, zip(*records, strict=True))
    return Batch("s", [], times, keys, values)


def taken(
    groups: Batch, window: Any, watermark: int
) -> tuple[list[tuple[str, Window, Any, int]], list[Any], int]:
    found = received([Arrival(ChannelName("c"), 1, 0, groups, None, 0)], "s", window, watermark)
    mine = [
        (key, group.window, COUNTS.result(group.acc), group.count) for key, group in found.groups
    ]
    odd = [
        (each.batch.stream, *record)
        for each in found.records
        for record in zip(
            each.batch.keys, each.batch.rows().values, each.batch.timestamps, strict=True
        )
    ]
    return mine, odd, found.late


def test_records_of_a_key_and_window_become_one_row_and_unusable_ones_go_unchanged() -> None:
    given = batch(
        ("a", {"x": 1}, 1),
        ("b", {"x": 2}, 2),
        ("a", {"x": 3}, 9),
        ("a", {"x": 4}, 10),
        ("a", {}, 3),
    )
    groups = grouping().groups(given)
    assert groups is not None
    assert groups.stream == "groups of n"
    assert groups.timestamps == [9, 9, 19, 3]
    assert cost(groups) == 4
    mine, odd, late = taken(groups, Tumbling(10), 0)
    assert mine == [
        ("a", Window(0, 10), {"n": 2, "s": 4}, 2),
        ("a", Window(10, 20), {"n": 1, "s": 4}, 1),
        ("b", Window(0, 10), {"n": 1, "s": 2}, 1),
    ]
    assert odd == [("s", "a", {}, 3)]
    assert late == 0


def test_records_that_the_aggregation_leaves_out_are_in_no_group() -> None:
    groups = grouping().groups(batch(("a", {"x": 7}, 1)))
    assert groups is not None
    assert len(groups) == 0


def test_groups_of_windows_that_have_closed_are_late_with_all_of_their_records() -> None:
    groups = grouping().groups(batch(("a", {"x": 1}, 1), ("a", {"x": 1}, 2), ("a", {"x": 1}, 12)))
    assert groups is not None
    mine, _, late = taken(groups, Tumbling(10), 10)
    assert ([each[1] for each in mine], late) == ([Window(10, 20)], 2)


def test_a_step_of_sliding_windows_belongs_to_all_of_them_that_are_open() -> None:
    groups = grouping().groups(batch(("a", {"x": 1}, 25), ("a", {"x": 2}, 26)))
    assert groups is not None
    window = Sliding(30, 10)
    mine, _, late = taken(groups, window, 0)
    assert [each[1] for each in mine] == [Window(0, 30), Window(10, 40), Window(20, 50)]
    assert {each[3] for each in mine} == {2}
    mine, _, late = taken(groups, window, 40)
    assert ([each[1] for each in mine], late) == ([Window(20, 50)], 0)
    assert taken(groups, window, 50)[2] == 2


def test_where_code_fails_or_a_group_is_too_large_records_are_sent() -> None:
    given = batch(("a", {"x": 1}, 1))
    assert grouping(most=5).groups(given) is None

    class Broken:
        prepare = COUNTS.prepare
        create = COUNTS.create

        def add_many(self, *given: Any) -> Any:
            raise ZeroDivisionError

    broken = RowGrouping(
        NodeName("n"), Tumbling(10), Broken(), lambda batch: None, stream_decoder({}), 99
    )  # type: ignore[arg-type]
    assert broken.groups(given) is None
