"""Groups without an end stay in parts, and are put together for the keys of a bundle."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from millwheel.core.columns.groups_frame import COUNT, END, KEY, START
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state import columns_to_rows
from millwheel.core.columns.state.change_logs import FleetingGroups, LastingGroups, accumulators_of
from millwheel.core.columns.state.columns_to_rows import Leaving
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Forever
from tests.unit.core.columns.state.test_windows import TUMBLING, Row, batch_of, plan_of

FEW = (AggregateSpec("n", "count"), AggregateSpec("most", "max", "size"))


def forever() -> ColumnPlan:
    plan = plan_of(TUMBLING, aggregates=FEW)
    assert plan is not None
    return replace(plan, window=Forever(), fires_once=False, versions=True)


def bundles_of(seed: int, many: int) -> list[list[Row]]:
    rng = random.Random(seed)
    return [
        [Row(rng.randrange(9), "x", 0.5, rng.randrange(99), rng.randrange(1000)) for _ in range(7)]
        for _ in range(many)
    ]


def as_rows(groups: pl.DataFrame) -> dict[Any, tuple[Any, ...]]:
    return {
        row[KEY]: (row[START], row[END], row[COUNT], row["a1"])
        for row in groups.iter_rows(named=True)
    }


def expected(records: list[Row]) -> dict[Any, tuple[Any, ...]]:
    by_key: dict[int, list[Row]] = {}
    for record in records:
        by_key.setdefault(record.ad, []).append(record)
    return {
        key: (
            min(row.at for row in own),
            max(row.at for row in own) + 1,
            len(own),
            max(row.size for row in own),
        )
        for key, own in by_key.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_groups_of_a_bundle_are_those_of_all_records_of_its_keys(seed: int) -> None:
    plan, records = forever(), list[Row]()
    held = LastingGroups()
    for bundle in bundles_of(seed, 40):
        records += bundle
        new = plan.group(batch_of(bundle))
        old = held.of_keys(new[KEY])
        new = new if old is None else plan.merge([old, new])
        whole = as_rows(new)
        held.add(new)
        all_keys = expected(records)
        assert whole == {row.ad: all_keys[row.ad] for row in bundle}
    assert as_rows(held.all_groups()) == expected(records)
    assert len(held.segments()) < 20


def test_no_watermark_ends_a_group() -> None:
    plan = forever()
    held = LastingGroups()
    held.add(plan.group(batch_of(bundles_of(1, 1)[0])))
    assert (held.due_at(), held.fires_at()) == (MAX_TIME, MAX_TIME)
    [segment] = held.segments()
    again = LastingGroups()
    again.restore(segment.number, segment.level, segment.groups, MAX_TIME)
    assert again.all_groups().equals(held.all_groups())


def test_the_groups_whose_newest_record_is_the_oldest_leave_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = forever()
    held = LastingGroups()
    for ad in range(10):
        held.add(plan.group(batch_of([Row(ad, "x", 0.5, 1, ad)])))
    held.add(plan.group(batch_of([Row(0, "x", 0.5, 1, 99)])))
    leaving = Leaving(held)
    left: list[int] = []
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 2)
    while leaving.begun or not left:
        left += [key for each in leaving.next_oldest(held.size() // 2) for key in each.groups[KEY]]
    assert sorted(left) == [1, 2, 3, 4, 5]
    assert sorted(held.all_groups()[KEY]) == [0, 6, 7, 8, 9]


def test_a_group_of_which_nothing_is_left_begins_anew() -> None:
    """It hides what older segments have of it, and is gone once there are none."""
    plan = forever()
    held = LastingGroups()
    group = plan.group(batch_of([Row(1, "x", 0.5, 1, 70), Row(2, "x", 0.5, 1, 80)]))
    held.add(group)
    nothing = group.filter(pl.col(KEY) == 1).with_columns(pl.lit(0, pl.Int64).alias(COUNT))
    held.add(nothing)
    assert held.of_keys(nothing[KEY]) is None
    assert sorted(held.all_groups()[KEY]) == [2]
    assert [groups[KEY].to_list() for _, groups in held.undivided()] == [[2]]
    segments = [segment.groups for segment in held.segments()]
    assert accumulators_of(plan, segments, 1, 0) == []
    assert len(accumulators_of(plan, segments, 2, 0)) == 1
    again = plan.group(batch_of([Row(1, "x", 0.5, 3, 20)]))
    held.add(again)
    found = held.of_keys(again[KEY])
    assert found is not None
    assert as_rows(found) == {1: (20, 21, 1, 3)}


def test_groups_of_nothing_go_as_segments_become_one() -> None:
    plan = forever()
    held = LastingGroups()
    for number in range(64):
        group = plan.group(batch_of([Row(number % 4, "x", 0.5, 1, 70)]))
        held.add(group.with_columns(pl.lit(0, pl.Int64).alias(COUNT)))
    assert not held.size()
    assert not held


def fleeting(ttl_us: int, bundles: list[list[Row]]) -> FleetingGroups:
    plan, held = forever(), FleetingGroups(ttl_us)
    for bundle in bundles:
        held.add(plan.group(batch_of(bundle)))
    return held


def test_groups_are_forgotten_once_the_watermark_is_so_far_beyond_them() -> None:
    held = fleeting(10, [[Row(1, "x", 0.5, 1, 70), Row(2, "x", 0.5, 1, 75)]])
    keys = pl.Series([1, 2])
    for watermark, known in ((80, [1, 2]), (81, [2]), (85, [2])):
        held.forget(watermark)
        found = held.of_keys(keys)
        assert found is not None
        assert found[KEY].to_list() == known == held.all_groups()[KEY].to_list()
    assert held.due_at() == 85
    held.forget(86)
    assert held.of_keys(keys) is None
    assert not held


def test_what_an_older_segment_has_of_a_forgotten_group_is_not_found() -> None:
    held = fleeting(10, [[Row(1, "x", 0.5, 1, 70), Row(2, "x", 0.5, 1, 99)]])
    held.add(forever().group(batch_of([Row(1, "x", 0.5, 1, 72)])))
    held.forget(90)
    assert len(held.segments()) == 1
    assert held.of_keys(pl.Series([1])) is None


@pytest.mark.parametrize(
    ("before", "new", "goes_on", "spans"),
    [
        (70, [80], True, False),
        (70, [81], False, False),
        (70, [78, 81], True, True),
        (70, [60, 65], True, False),
        (70, [59, 72], True, True),
        (70, [81, 91], False, False),
        (70, [81, 92], False, True),
        (MIN_TIME, [MAX_TIME - 2], False, False),
    ],
)
def test_a_group_goes_on_or_begins_anew(
    before: int, new: list[int], goes_on: bool, spans: bool
) -> None:
    plan = forever()
    held = fleeting(10, [])
    old = plan.group(batch_of([Row(1, "x", 0.5, 1, before)]))
    groups = plan.group(batch_of([Row(1, "x", 0.5, 1, at) for at in new]))
    going_on, spanning = held.going_on(old, groups)
    assert (going_on is not None, bool(spanning)) == (goes_on, spans)
