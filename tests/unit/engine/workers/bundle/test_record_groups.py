"""Windows in columns that stay for late records, and late records that are more than counted, give
what rows give."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.store_layout import COLUMNS
from millwheel.core.model.ranges import KeyRange
from millwheel.core.pipeline.spec import PipelineSpec, StreamSpec
from millwheel.core.pipeline.work import WindowSpec
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    segment_entry,
    segments_within,
)
from tests.unit.core.columns.state.test_windows import (
    FIELDS,
    SLIDING,
    TUMBLING,
    Row,
    plan_of,
    rows,
    spec_of,
)
from tests.unit.engine.workers.operators.windows.test_grouping import (
    columnar,
    in_rows,
    mixed,
    produced,
    same_state_in_columns,
)

STAYING: dict[str, dict[str, Any]] = {
    "discarding": {"allowed_lateness_us": 15},
    "accumulating": {"allowed_lateness_us": 15, "accumulation": "accumulating"},
    "retracting": {"allowed_lateness_us": 7, "accumulation": "retracting"},
    "retracting, nothing late": {"accumulation": "retracting"},
    "every second late one": {
        "allowed_lateness_us": 15,
        "accumulation": "accumulating",
        "trigger": {"after_watermark": {"late": {"after_count": 2}}},
    },
    "aside": {"late": "side:behind"},
    "aside, once all is over": {
        "late": "side:behind",
        "allowed_lateness_us": 9,
        "accumulation": "retracting",
    },
    "again": {"late": "refire"},
    "again, once all is over": {"late": "refire", "allowed_lateness_us": 9},
}


@pytest.mark.parametrize("windowing", STAYING.values(), ids=STAYING)
@pytest.mark.parametrize("window", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
@given(
    script=st.one_of(
        mixed, st.lists(st.tuples(st.lists(rows, max_size=8), st.integers(0, 12), st.booleans()))
    ),
    condition=st.sampled_from(["", "size > 0"]),
    crashes=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_windows_that_stay_in_columns_take_late_records_as_rows_do(
    window: WindowSpec,
    windowing: dict[str, Any],
    script: list[tuple[list[Row], int, bool]],
    condition: str,
    crashes: bool,
) -> None:
    same_state_in_columns(
        window, ("ad",), script, again if crashes else None, condition=condition, **windowing
    )


def test_after_a_crash_no_key_has_open_windows_in_rows_and_in_columns() -> None:
    """A late record has brought a fired window of key 1 to rows; a tiny cost, all windows of key
    0."""
    script = [
        (
            [Row(1, "click", 1.0, 1, -3), Row(1, "click", 2.0, 1, 5), Row(0, "click", 1.0, 1, 5)],
            4,
            True,
        ),
        ([Row(1, "click", 1.0, 1, -4)], 1, True),
        ([Row(0, "click", 1e-14, 1, 5)], 0, True),
        ([Row(1, "click", 3.0, 1, 5)], 0, True),
    ]
    same_state_in_columns(
        SLIDING, ("ad",), script, again, condition="", **STAYING["again, once all is over"]
    )


def test_only_the_window_of_a_late_record_leaves_the_columns() -> None:
    changes: dict[str, Any] = {"allowed_lateness_us": 100, "accumulation": "accumulating"}
    spec, pipeline = spec_of(**changes)
    plan = plan_of(**changes)
    assert plan is not None
    operator = columnar(spec, pipeline, plan)
    first = [Row(key, "click", 1.0, 1, at) for key in range(3) for at in (3, 13, 23)]
    found = produced(
        operator,
        [(first, 0), ([], 20), ([Row(1, "view", 2.0, 1, 5)], 0), ([], 5)],
        lambda batch: batch,
    )
    assert [len(made.get("out", [])) for made in found] == [0, 6, 1, 0, 3]
    assert [(row["ad"], row["window_start"], row["n"]) for row in found[2]["out"]] == [(1, 0, 2)]
    assert not operator._in_rows
    assert not list(operator._rows._overlay.scan(COLUMNS))


def test_a_merged_shard_fires_no_window_that_one_of_its_parents_has_fired() -> None:
    """It goes on from the lower of two watermarks."""
    changes: dict[str, Any] = {"allowed_lateness_us": 100, "accumulation": "accumulating"}
    spec, pipeline = spec_of(**changes)
    plan = plan_of(**changes)
    assert plan is not None
    parents = [columnar(spec, pipeline, plan) for _ in range(2)]
    successor = in_rows(spec, pipeline, plan)
    number = 0
    for key, (operator, watermark) in enumerate(zip(parents, (5, 15), strict=True)):
        whole: list[tuple[list[Row], int]] = [
            ([Row(key, "click", 1.0, 1, at) for at in (3, 13)], 0),
            ([], watermark),
        ]
        found = produced(operator, whole, lambda batch: batch, ends=False)
        assert len(found[1].get("out", [])) == (watermark > 10)
        store: Any = operator._rows._overlay
        for segment in segments_within(store, KeyRange(0, 2**64), watermark):
            successor._overlay.put(*segment_entry("s", number, segment))
            number += 1
    child = ColumnOperator(
        spec,
        plan,
        ColumnShard("s", cast(Any, successor._overlay), 5),
        successor,
        lambda stream, values: values,
    )
    found = produced(child, [([Row(1, "view", 1.0, 1, 4)], 15), ([], 5)], lambda batch: batch)
    fired = [
        [(row["ad"], row["window_start"], row["n"]) for row in made.get("out", [])]
        for made in found
    ]
    assert fired == [[(0, 0, 1), (1, 0, 2)], [(0, 10, 1), (1, 10, 1)], []]


def again(operator: ColumnOperator, closed: int) -> ColumnOperator:
    """The operator of the next owner, with the store of the one before."""
    before = operator._rows
    rows = WindowedOperator(
        before._spec, _pipeline_of(before), before._overlay, before._decode, 100
    )
    rows.outputs.finish_row = operator._held.plan.typed
    store: Any = before._overlay
    return ColumnOperator(
        before._spec, operator._held.plan, ColumnShard("s", store, closed), rows, before._decode
    )


def _pipeline_of(operator: WindowedOperator) -> PipelineSpec:
    stream = StreamSpec("events", timestamp="t", fields=FIELDS)
    return PipelineSpec("p", (stream,), (operator._spec,), (), "/")
