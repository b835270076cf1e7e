"""Which computations run on columns, and how their groups are made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import key_column
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.model.keys import NULL
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of


def test_groups_are_in_order_of_arrival_so_the_same_records_give_the_same_bytes() -> None:
    plan = plan_of()
    assert plan is not None
    ads = [(number * 37) % 101 for number in range(101)]
    groups = plan.group(batch_of([Row(ad, "click", 1.0, 1, 5) for ad in ads] * 2))
    assert groups[KEY].to_list() == ads
    assert plan.merge([groups[50:], groups[:60]])[KEY].to_list() == ads[50:] + ads[:50]


def test_only_records_that_count_are_checked_and_there_may_be_none() -> None:
    shares = (AggregateSpec("share", "sum", "cost / size"),)
    plan = plan_of(aggregates=shares, condition="size > 0")
    assert plan is not None
    none, one = Row(1, "click", 1.0, 0, 5), Row(1, "click", 1.0, 2, 5)
    assert plan.results(plan.group(batch_of([none, one])))["share"].to_list() == [0.5]
    assert plan.group(batch_of([none])).height == 0
    every = plan_of(aggregates=shares)
    assert every is not None
    with pytest.raises(Inexact):
        every.group(batch_of([none, one]))


OF_INPUT = WindowSpec("of", {"start": "size", "end": "ad"})


def test_windows_of_results_are_grouped_by_their_bounds_and_judged_by_their_end() -> None:
    plan = plan_of(OF_INPUT, aggregates=(AggregateSpec("total", "sum", "size"),))
    assert plan is not None
    # its time lies behind the end of the third: only the bounds count
    made = [Row(9, "", 1.0, 3, 5), Row(8, "", 1.0, 3, 6), Row(9, "", 1.0, 4, 90)]
    made.append(Row(9, "", 1.0, 3, 7))
    groups = plan.group(batch_of(made))
    bounds = zip(groups["start"].to_list(), groups["end"].to_list(), strict=True)
    assert list(bounds) == [(3, 9), (3, 8), (4, 9)]
    assert plan.results(groups)["total"].to_list() == [6, 3, 4]
    late = plan.late(batch_of(made), 8)
    assert late is not None
    assert late.tolist() == [False, True, False, False]
    assert plan.too_late(batch_of(made), 9).tolist() == [True] * 4


@pytest.mark.parametrize("end", [3, 2])
def test_a_batch_with_a_record_that_names_no_window_goes_by_rows(end: int) -> None:
    plan = plan_of(OF_INPUT)
    assert plan is not None
    with pytest.raises(Inexact):
        plan.group(batch_of([Row(9, "", 1.0, 3, 5), Row(end, "", 1.0, 3, 5)]))


# groups.py


@pytest.mark.parametrize("fields", [("ad",), ("ad", "kind")])
def test_a_key_that_no_column_has_is_not_made_a_null(fields: tuple[str, ...]) -> None:
    plan = plan_of(inputs=(InputSpec("events", KeySpec(KeyKind.FIELDS, fields)),))
    assert plan is not None
    batch = batch_of([Row(1, "click", 0.5, 1, 3)])
    batch = replace(batch, keys=key_column([batch.frame[name] for name in fields]))
    [(key, group)] = plan.row_groups(plan.group(batch))
    assert plan.from_row_groups([(key, group)]).height == 1
    for other in (NULL, "click", (1, NULL), (1, "click", 2)):
        with pytest.raises(Inexact):
            plan.from_row_groups([(key, group), (other, group)])
