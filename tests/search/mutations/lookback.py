"""Deliberate mistakes about records with aggregates of those before them."""

from __future__ import annotations

from typing import Any

from millwheel.core.ranked import lookback
from millwheel.core.ranked.lookback import Lookback
from millwheel.engine.workers.operators.ranked import over
from millwheel.engine.workers.operators.ranked.over import Over, OverGroup
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
