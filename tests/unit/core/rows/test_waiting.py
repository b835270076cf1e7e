"""Records along time in columns: which may wait, which are taken and which go. They come by time,
and then as their names in rows are ordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.model.times import MAX_TIME
from millwheel.core.rows.kept_records import AT, ROW
from millwheel.core.rows.lookback_columns import LookbackSegments
from millwheel.core.rows.waiting import (
    CHANNEL,
    NUMBER,
    AnyWaitingColumns,
    KeyTypes,
    TimelineSegments,
    WaitingColumns,
    WaitingSegments,
    by_time,
    channel_ranks,
    indexes_in_order,
    numbers_of,
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


KEYS = KeyTypes(("k",), pl.Int64)
FIELDS = {"k": "int", "f": "float"}
OF_FIELDS = WaitingColumns(KEYS, FIELDS, 1_000, ROW)
OF_ANY = AnyWaitingColumns(KeyTypes((), None), {}, 1_000, ROW)


def batch(columns: Mapping[str, Any], times: list[int]) -> ColumnBatch:
    frame = pl.DataFrame(columns)
    return ColumnBatch("s", np.arange(len(times)), np.array(times), frame["k"], frame)


@pytest.mark.parametrize("columns", [OF_FIELDS, OF_ANY])
def test_floats_that_are_no_numbers_and_long_texts_do_not_wait(columns: WaitingColumns) -> None:
    given = batch({"k": [1, 2, 3], "f": [1.0, float("nan"), None]}, [1, 2, 3])
    assert columns.fitting(given, None).tolist() == [True, False, True]
    given = batch({"k": [1, 2], "f": [1.0, 2.0], "s": ["x", "x" * 900]}, [1, 2])
    assert columns.fitting(given, None).tolist() == [True, False]


def test_records_of_another_form_do_not_wait() -> None:
    nested = batch({"k": [1], "f": [{"a": 1.0}]}, [1])
    for columns in (OF_FIELDS, OF_ANY):
        with pytest.raises(Inexact):
            columns.fitting(nested, None)
        with pytest.raises(Inexact):
            columns.fitting(batch({"k": [1], "f": [1.0]}, [1]), pl.Struct({"k": pl.Int64}))
    with pytest.raises(Inexact):
        OF_FIELDS.fitting(batch({"k": [1]}, [1]), None)
    with pytest.raises(Inexact):
        OF_ANY.in_columns("s", [1], [{"k": 1}], [1])


def test_records_that_wait_are_sorted_and_know_their_place() -> None:
    given = batch({"k": [1, 2, 3], "f": [1.0, 2.0, 3.0]}, [5, 2, 3])
    frame = OF_FIELDS.waiting(given, "c", numbers_of([7, 8, 9]))
    assert frame.select(KEY, AT, NUMBER, CHANNEL).rows() == [
        (2, 2, 8, "c"), (3, 3, 9, "c"), (1, 5, 7, "c"),
    ]  # fmt: skip
    assert frame[ROW].to_list()[2] == {"k": 1, "f": 1.0}


def test_a_key_of_several_parts_tells_the_type_of_each() -> None:
    kind = pl.Struct({"a": pl.Int64, "b": pl.String})
    assert KeyTypes(("a", "b"), kind).key_types == {"a": pl.Int64, "b": pl.String}
    assert KEYS.key_types == {"k": pl.Int64}


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
