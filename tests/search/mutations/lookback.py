"""Deliberate mistakes about records with aggregates of those before them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millwheel.core.model.times import MAX_TIME
from millwheel.core.rows import lookback, lookback_columns
from millwheel.core.rows.lookback import Lookback
from millwheel.core.rows.lookback_columns import (
    LookbackForm,
    LookbackSegments,
)
from millwheel.engine.workers.operators.ranked import over
from millwheel.engine.workers.operators.ranked.over import Over
from millwheel.engine.workers.operators.ranked.over_rows import OverGroup
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=4, features="over rows_before", variants="reference", first=5)
def a_look_back_has_one_record_more() -> Context:
    """A record leaves one too late."""
    right = Lookback._leave

    def wrong(self: Lookback, at: int) -> None:
        self._count -= 1
        right(self, at)
        self._count += 1

    return replaced(Lookback, "_leave", wrong)


@mistake(within=4, features="over range_of_time", variants="reference", first=3)
def the_records_of_one_time_come_one_by_one() -> Context:
    """So that the first of them does not have the others in its look-back."""
    right = lookback.groups
    return replaced(lookback, "groups", lambda rows, by_rows: right(rows, True))


@mistake(within=4, features="over", variants="reference", first=3)
def records_come_in_the_order_of_arrival() -> Context:
    """Whatever their times."""
    return replaced(over, "_in_order", lambda rows: rows)


@mistake(within=4, features="over rows_before", variants="reference", first=5)
def the_next_record_begins_anew() -> Context:
    """What a bundle has taken is not kept for the next one."""
    right = Over._keep

    def wrong(self: Over, own: OverGroup, *parts: Any) -> None:
        right(self, own, *parts)
        self._forget(own)

    return replaced(Over, "_keep", wrong)


@mistake(within=4, features="over_in_columns rows_before", variants="together pairs", first=11)
def a_look_back_in_columns_has_one_record_more() -> Context:
    """A record leaves one too late."""
    right = LookbackForm.of

    def wrong(self: LookbackForm, rows: Any) -> Any:
        columns = right(self, rows)
        return columns and replace(columns, size=columns.size + 1)

    return replaced(LookbackForm, "of", wrong)


@mistake(within=4, features="over_in_columns rows_before", variants="crashes", first=11)
def records_in_columns_that_wait_are_gone_with_the_worker() -> Context:
    """The next owner takes what lies there for records that have been taken."""
    right = LookbackSegments.restore

    def wrong(self: LookbackSegments, number: int, level: int, groups: Any, *times: int) -> None:
        right(self, number, level, groups, times[0], MAX_TIME)

    return replaced(LookbackSegments, "restore", wrong)


@mistake(within=4, features="over_in_columns rows_before", variants="large", first=11)
def rows_begin_anew_with_a_key_that_columns_had() -> Context:
    """They get the records that wait, but none of those that have been taken."""
    right = Over.go_on
    return replaced(Over, "go_on", lambda self, ctx, past, waiting: right(self, ctx, [], waiting))


@mistake(within=4, features="over_in_columns range_of_time", variants="together pairs", first=34)
def a_range_in_columns_begins_with_its_own_time() -> Context:
    """Nothing before it counts."""
    right = lookback_columns._in_range
    return replaced(lookback_columns, "_in_range", lambda at, codes, size: right(at, codes, 0))
