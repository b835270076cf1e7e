"""Groups of small bundles in rows: what they hold, when they become columns, and their stored
form."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns import few_groups
from millwheel.core.columns.batch import key_column
from millwheel.core.columns.few_groups import (
    FewGroups,
    RowForm,
    ending_after,
    ending_by,
    ends_of,
    frame_of,
    merged_rows,
    restored_rows,
    starts_of,
    stored_rows,
)
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.formats.store_layout import pack, unpack
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import AggregateSpec, InputSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.windows import Window
from millwheel.errors import CorruptionError
from tests.unit.core.columns.state.test_windows import (
    EVERYTHING,
    Row,
    aggregation_of,
    batch_of,
    plan_of,
)

PARTS = (
    *EVERYTHING,
    AggregateSpec("kinds", "count_distinct", "kind"),
    AggregateSpec("about", "approx_count_distinct", "size"),
    AggregateSpec("half", "quantile", "cost", options={"q": 0.5}),
    AggregateSpec("best", "top_k", "cost", options={"k": 2}),
    AggregateSpec("spread", "stddev", "cost"),
)
BY_TWO = (InputSpec("events", KeySpec(KeyKind.FIELDS, ("ad", "kind"))),)


def form_of(**changes: Any) -> RowForm:
    plan = plan_of(**changes)
    assert plan is not None
    return RowForm(plan, aggregation_of(**changes))


def few_of(form: RowForm, *rows: Row) -> FewGroups:
    batch = batch_of(rows)
    if len(form.plan.key_names) > 1:
        batch = type(batch)(
            batch.stream,
            batch.seqs,
            batch.timestamps,
            key_column([batch.frame[name] for name in form.plan.key_fields]),
            batch.frame,
        )
    made = form.groups(form.plan.row_groups(form.plan.group(batch)))
    assert made is not None
    return made


@pytest.mark.parametrize("inputs", [None, BY_TWO], ids=["one field", "two fields"])
def test_all_that_columns_hold_is_read_from_the_store_as_it_was(inputs: Any) -> None:
    form = form_of(aggregates=PARTS, **({"inputs": inputs} if inputs else {}))
    few = few_of(
        form, Row(1, "ä", 0.1, 3, 5), Row(2, "click", -7e9, 2**62, 5), Row(1, "view", 0.2, -1, 15)
    )
    back = restored_rows(unpack(pack(stored_rows(few))))
    assert back.schema == pl.Schema(form.plan.schema)
    assert back.equals(few.frame())
    assert [group.acc for _, group in form.plan.row_groups(back)] == [
        group.acc for _, group in form.plan.row_groups(few.frame())
    ]


@pytest.mark.parametrize(
    "stored", [[[["key", "Int64"]], [["x"]]], [[["key", "Int7"]], [[1]]], [1], [[], [], []]]
)
def test_bytes_that_are_no_rows_are_damage(stored: Any) -> None:
    with pytest.raises(CorruptionError):
        restored_rows(stored)


def test_what_no_column_holds_is_left_to_the_frame() -> None:
    form = form_of(
        aggregates=(AggregateSpec("most", "max", "size"), AggregateSpec("spend", "sum", "cost"))
    )
    window = Window(0, 10)
    assert form.groups([("text", Group(window, [[1], [0, 1.5]], 1, None, None))]) is None
    assert form.groups([(1, Group(window, [[2**63], [0, 1.5]], 1, None, None))]) is None
    for acc in ([[1.0], [0, 1.5]], [[1], [0, 2.0**-120]]):
        with pytest.raises(Inexact):
            form.groups([(1, Group(window, acc, 1, None, None))])


def test_groups_are_cut_at_a_time_in_either_form() -> None:
    few = few_of(
        form_of(), Row(1, "view", 0.5, 1, 5), Row(1, "view", 0.5, 1, 25), Row(2, "view", 0.5, 1, 15)
    )
    for groups in (few, few.frame()):
        assert sorted(ends_of(ending_by(groups, 20))) == [10, 20]
        assert starts_of(ending_after(groups, 20)).tolist() == [20]
    assert ending_after(few, 0) is few


def test_many_together_become_columns_and_merging_changes_no_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = form_of()
    parts = [few_of(form, Row(1, "view", 0.5, 1, 5)) for _ in range(3)]
    before = [frame_of(part).rows() for part in parts]
    whole = merged_rows(parts)
    assert whole is not None
    assert [(row.records, row.acc[0]) for row in whole.rows.values()] == [(3, 3)]
    assert [frame_of(FewGroups(form, part.rows)).rows() for part in parts] == before
    assert merged_rows([*parts, parts[0].frame()]) is None
    monkeypatch.setattr(few_groups, "MOST_FEW", 2)
    assert merged_rows(parts) is None


def test_windows_of_small_bundles_are_put_together_as_those_of_large_ones_are() -> None:
    form = form_of()
    windows = ColumnWindows(form.plan)
    for number in range(70):
        few = few_of(form, Row(number % 3, "view", 0.5, 1, number % 40))
        windows.add(few if number % 10 else few.frame())
    assert len(windows.segments()) < 30
    closed = windows.close(100)
    assert closed is not None
    assert closed["count"].sum() == 70
    assert closed.select("key", "start").is_duplicated().sum() == 0
