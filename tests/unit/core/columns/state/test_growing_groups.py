"""The different values of groups without an end: a segment has those that are new in it."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.change_logs import accumulators_of
from millwheel.core.columns.state.columns_to_rows import Leaving
from millwheel.core.columns.state.growing_groups import GrowingGroups
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Forever
from tests.unit.core.columns.state.test_windows import TUMBLING, Row, batch_of, plan_of

COUNTS = (
    AggregateSpec("n", "count"),
    AggregateSpec("sizes", "count_distinct", "size"),
    AggregateSpec("costs", "count_distinct", "cost", "size > 40"),
    AggregateSpec("kinds", "count_distinct", "kind"),
)
Counts = dict[int, tuple[int, int, int, int]]


def forever() -> ColumnPlan:
    plan = plan_of(TUMBLING, aggregates=COUNTS)
    assert plan is not None
    aggregates = tuple(each.lasting() for each in plan.aggregates)
    return replace(plan, aggregates=aggregates, window=Forever(), fires_once=False, versions=True)


def bundle(rng: random.Random, count: int = 20) -> list[Row]:
    return [
        Row(
            rng.randrange(6),
            rng.choice("abcdef"),
            rng.choice([0.0, -0.0, 0.5, 7.0]),
            rng.randrange(60),
            rng.randrange(1000),
        )
        for _ in range(count)
    ]


def taken(plan: ColumnPlan, held: GrowingGroups, records: list[Row]) -> pl.DataFrame:
    new = plan.group(batch_of(records))
    old = held.of_keys(new[KEY])
    if old is not None:
        new = plan.merge([old.select(new.columns), new])
    new = held.counted(old, new)
    held.add(new)
    held.numbers()
    return new


def expected(records: list[Row]) -> Counts:
    by_key: dict[int, list[Row]] = {}
    for record in records:
        by_key.setdefault(record.ad, []).append(record)
    return {
        key: (
            len(own),
            len({row.size for row in own}),
            len({row.cost for row in own if row.size > 40}),
            len({row.kind for row in own}),
        )
        for key, own in by_key.items()
    }


def found(plan: ColumnPlan, groups: pl.DataFrame) -> Counts:
    results = plan.results(groups)
    names = [each.name for each in COUNTS]
    return dict(zip(groups[KEY].to_list(), results.select(names).rows(), strict=True))


def again(held: GrowingGroups, plan: ColumnPlan) -> GrowingGroups:
    """What the next owner has."""
    found = GrowingGroups(plan)
    for segment in held.segments():
        found.restore(segment.number, segment.level, segment.groups, MAX_TIME)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_value_counts_once_however_many_segments_and_owners_there_are(seed: int) -> None:
    rng, plan, records = random.Random(seed), forever(), list[Row]()
    held = GrowingGroups(plan)
    for number in range(30):
        own = bundle(rng)
        records += own
        whole = expected(records)
        assert found(plan, taken(plan, held, own)) == {row.ad: whole[row.ad] for row in own}
        if number % 7 == 6:
            held = again(held, plan)
    assert found(plan, held.all_groups()) == expected(records)


def test_a_segment_has_the_new_values_alone() -> None:
    plan = forever()
    held = GrowingGroups(plan)
    taken(plan, held, [Row(1, "a", 0.5, size, 7) for size in range(50)])
    new = taken(plan, held, [Row(1, "a", 0.5, size, 7) for size in range(48, 52)])
    assert new["a1"].to_list() == [[50, 51]]
    assert new["a1n"].to_list() == [52]
    [acc] = accumulators_of(plan, [each.groups for each in held.segments()], 1, 0)
    assert sorted(acc[1].values()) == list(range(52))


def test_groups_that_have_left_may_come_back_with_their_values() -> None:
    plan = forever()
    held = GrowingGroups(plan)
    own = [Row(ad, "a", 0.5, size, 7) for ad in range(4) for size in range(10)]
    taken(plan, held, own)
    taken(plan, held, own[5:25])
    left = Leaving(held).taken_out([pl.Series([1, 2])])
    held.numbers()
    whole = held.together([each.groups for each in left])
    assert found(plan, whole) == {ad: expected([*own, *own[5:25]])[ad] for ad in (1, 2)}
    back = plan.from_row_groups(list(plan.row_groups(whole)))
    held.add(held.counted(None, back))
    held.numbers()
    assert found(plan, held.all_groups()) == expected([*own, *own[5:25]])
    assert found(plan, taken(plan, held, own[10:11]))[1][1] == 10


def test_two_parents_may_have_one_number_for_two_groups() -> None:
    plan = forever()
    one, other = GrowingGroups(plan), GrowingGroups(plan)
    taken(plan, one, [Row(1, "a", 0.5, 3, 7)])
    taken(plan, other, [Row(2, "a", 0.5, 3, 7)])
    successor = GrowingGroups(plan)
    for number, segment in enumerate([*one.segments(), *other.segments()]):
        successor.restore(number, segment.level, segment.groups, MAX_TIME)
    taken(plan, successor, [Row(ad, "a", 0.5, 3, 7) for ad in (1, 2, 3)])
    assert [counts[1] for counts in found(plan, successor.all_groups()).values()] == [1, 1, 1]
