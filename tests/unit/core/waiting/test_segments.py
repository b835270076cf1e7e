"""Records that wait in columns come by time, and then as their names in rows are ordered."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.ranked.kept_records import AT, ROW
from millwheel.core.waiting.segments import (
    CHANNEL,
    NUMBER,
    WaitingSegments,
    by_time,
    channel_ranks,
    indexes_in_order,
)

Entry = tuple[int, str, int]
ENTRIES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "a0", "a/1"]), st.integers(1, 99)),
    min_size=1,
    unique_by=lambda entry: entry[1:],
)


def records(entries: Sequence[Entry]) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            KEY: [1] * len(entries),
            AT: [at for at, _, _ in entries],
            NUMBER: [number for _, _, number in entries],
            CHANNEL: [channel for _, channel, _ in entries],
            ROW: [{"n": number} for _, _, number in entries],
        }
    )
    return by_time(frame)


@given(ENTRIES)
def test_the_places_of_records_are_those_of_their_timers(entries: list[Entry]) -> None:
    frame = records(entries)
    found = frame[indexes_in_order(frame)].select(AT, CHANNEL, NUMBER).rows()
    assert found == sorted(entries, key=lambda each: (each[0], f"{each[1]}:{each[2]:020d}"))


def test_a_channel_whose_name_begins_another_one_comes_as_its_tag_does() -> None:
    assert channel_ranks(pl.Series(["a", "a0", "a"])).tolist() == [1, 0, 1]  # "a:" and "a0:"


def test_records_wait_until_the_watermark_has_passed_them() -> None:
    waiting = WaitingSegments(16)
    waiting.add(records([(1, "a", 1), (3, "a", 2), (5, "a", 3)]))
    waiting.add(records([(2, "b", 1), (3, "b", 2)]))
    assert waiting.fires_at() == 1
    assert [each[AT].to_list() for each in waiting.due(3)] == [[1], [2]]
    waiting.take(3)
    assert waiting.fires_at() == 3
    assert waiting.due(3) == []
    assert waiting.taken_until == 3
    assert [each[AT].to_list() for each in waiting.due(6)] == [[3, 5], [3]]
    waiting.take(4)
    assert len(waiting.segments()) == 1
    waiting.take(6)
    assert not waiting
    assert waiting.due_at() > 6


def test_segments_are_put_together_without_what_has_come() -> None:
    waiting = WaitingSegments(3)
    waiting.add(records([(1, "a", 1), (9, "a", 2)]))
    waiting.add(records([(2, "a", 3), (8, "a", 4)]))
    waiting.take(5)
    waiting.add(records([(7, "a", 5)]))
    [segment] = waiting.segments()
    assert segment.groups[AT].to_list() == [7, 8, 9]
    waiting.numbers()
