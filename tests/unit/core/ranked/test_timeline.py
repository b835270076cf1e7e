"""Segments along time: what is taken, what goes, and what is not put together."""

from __future__ import annotations

import polars as pl
import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.model.times import MAX_TIME
from millwheel.core.ranked.kept_records import AT, ROW
from millwheel.core.ranked.lookback_columns import LookbackSegments
from millwheel.core.ranked.timeline import TimelineSegments
from millwheel.core.waiting.segments import CHANNEL, NUMBER, WaitingSegments


def frame(*times: int) -> pl.DataFrame:
    columns = {KEY: 1, NUMBER: 1, CHANNEL: "c"}
    rows = pl.DataFrame({AT: list(times), ROW: [{"n": at} for at in times]})
    return rows.with_columns(pl.lit(value).alias(name) for name, value in columns.items())


@pytest.mark.parametrize("lying", [WaitingSegments(2), LookbackSegments(False, 3, 2)])
def test_segments_of_a_shard_that_has_taken_more_are_not_put_together(
    lying: TimelineSegments,
) -> None:
    lying.restore(0, 0, frame(4, 12), 3, fired=8)
    assert (lying.closed, lying.taken_until, lying.fires_at()) == (3, 8, 12)
    lying.add(frame(9))
    assert len(lying.segments()) == 2
    lying.take(8)
    lying.add(frame(10))
    assert [each.groups[AT].to_list() for each in lying.segments()][-1] != [10]
    assert [each.fired for each in lying.segments()][-1] == 8


def test_a_segment_goes_once_nothing_of_it_is_of_use() -> None:
    lying = LookbackSegments(False, 3, 16)
    lying.add(frame(4, 5))
    lying.take(6)
    assert (lying.fires_at(), lying.due_at()) == (MAX_TIME, 8)
    lying.take(9)
    assert not lying
