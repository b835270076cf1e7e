"""Columnar segments in a store: what was written is found again, by range, by types, and without
what has closed."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from millwheel.core.columns.segments import GroupsKind
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.state.column_segments import (
    Segment,
    open_groups,
    segment_entry,
    segments_of,
    segments_within,
)
from tests.fakes.plain_storage import SimStore

ALL = KeyRange(0, 2**64)
INTS, FLOATS = (("n", "int"),), (("n", "float"),)


def groups(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Of keys, starts and ends."""
    return pl.DataFrame(rows, {"key": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row")


def stored(*segments: Segment) -> SimStore:
    return SimStore(
        dict(segment_entry("shard", number, segment) for number, segment in enumerate(segments))
    )


def test_what_is_written_is_read_with_its_level_its_kind_and_its_types() -> None:
    one = Segment(2, groups((1, 0, 10)), GroupsKind.WINDOWS, 0, INTS)
    [found] = segments_within(stored(one), ALL, 0)
    assert (found.level, found.kind, found.types) == (2, GroupsKind.WINDOWS, INTS)
    assert found.groups.equals(one.groups)


def test_a_part_of_a_range_has_its_keys_alone_and_no_window_that_has_closed() -> None:
    keys = range(40)
    store = stored(
        Segment(0, groups(*((key, 0, 10) for key in keys), (0, 10, 20))),
        Segment(0, groups((1, 0, 10))),
    )
    half = KeyRange(0, 2**63)
    mine = [key for key in keys if key_hash(key) in half]
    assert (
        next(part.groups["key"].to_list() for part in segments_within(store, half, 5))[: len(mine)]
        == mine
    )
    assert [part.groups.rows() for part in segments_within(store, ALL, 10)] == [[(0, 10, 20)]]
    assert len(list(segments_of(store))) == 2


def test_what_no_watermark_removes_is_there_behind_the_end_of_the_input() -> None:
    lasting = Segment(0, groups((1, MIN_TIME, MAX_TIME)), GroupsKind.LASTING)
    [found] = segments_within(stored(lasting), ALL, MAX_TIME)
    assert found.groups.equals(lasting.groups)
    assert segments_within(stored(replace(lasting, kind=GroupsKind.WINDOWS)), ALL, MAX_TIME) == []


def test_records_in_order_stay_and_know_up_to_which_time_they_have_been_taken() -> None:
    ordered = Segment(0, pl.DataFrame({"key": [1, 2], "at": [5, 30]}), GroupsKind.ORDERED, fired=7)
    for closed, fired in ((4, 7), (20, 20), (MAX_TIME, MAX_TIME)):
        [found] = segments_within(stored(ordered), ALL, closed)
        assert found.groups.equals(ordered.groups)
        assert found.fired == fired


def test_open_groups_are_told_apart_by_the_types_that_were_inferred() -> None:
    store = stored(
        Segment(0, groups((1, 0, 10)), types=INTS),
        Segment(0, groups((2, 0, 10)), types=FLOATS),
        Segment(1, groups((3, 0, 10)), types=INTS),
    )
    found = open_groups(store, 0)
    assert {
        types: [frame["key"].to_list() for frame in frames] for types, frames in found.items()
    } == {
        INTS: [[1], [3]],
        FLOATS: [[2]],
    }
