"""Deliberate mistakes about records that wait for the watermark in columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from millwheel.core.model.times import MAX_TIME
from millwheel.core.rows import versions
from millwheel.core.rows import waiting as segments
from millwheel.core.rows.versions import EnrichPlan
from millwheel.core.rows.waiting import WaitingSegments
from millwheel.engine.workers.operators import waiting
from millwheel.engine.workers.operators.waiting import WaitingOperator
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=10, features="order_in_columns", variants="together pairs")
def records_in_columns_come_as_they_have_arrived() -> Context:
    """What has come due is not sorted."""
    return replaced(waiting, "indexes_in_order", lambda records: np.arange(records.height))


@mistake(within=10, features="order_in_columns", variants="crashes")
def records_that_wait_in_columns_are_gone_with_the_worker() -> Context:
    """The next owner takes what lies there for records that have come."""
    right = WaitingSegments.restore

    def wrong(self: WaitingSegments, number: int, level: int, groups: Any, *times: int) -> None:
        right(self, number, level, groups, times[0], MAX_TIME)

    return replaced(WaitingSegments, "restore", wrong)


@mistake(within=10, features="enrich_in_columns", variants="together pairs")
def a_version_in_columns_counts_behind_its_own_time() -> Context:
    """Not for records of that time."""
    right = EnrichPlan._last_before

    def wrong(self: EnrichPlan, records: Any, *parts: Any) -> Any:
        return right(self, records.with_columns(at=records["at"] - 1), *parts)

    return replaced(EnrichPlan, "_last_before", wrong)


@mistake(within=10, features="enrich_in_columns", variants="large large-crashes")
def what_waits_goes_with_a_key_that_leaves_the_columns() -> Context:
    """Rows get the versions that have been taken, and nothing that waits."""
    return replaced(WaitingOperator, "_left_waiting", lambda self, left: iter(()))


@mistake(within=10, features="enrich_in_columns", variants="large large-crashes together")
def a_version_in_columns_goes_once_it_has_been_taken() -> Context:
    """As segments are put together, none is left."""
    return replaced(versions, "_last_of_each", lambda found: np.array([], np.int64))


@mistake(within=10, features="order_in_columns", variants="bundles together")
def a_record_at_the_watermark_comes_in_columns() -> Context:
    """Others of its time may still come before it."""
    right = segments.due_of

    def wrong(segment: Any, watermark: int) -> Any:
        return right(segment, min(watermark + 1, MAX_TIME))

    return replaced(segments, "due_of", wrong)
