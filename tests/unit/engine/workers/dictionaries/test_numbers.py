"""The numbers of values, against a plain dict: whatever comes together, whoever goes on, and with a
time to live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millwheel.core.formats.number_runs import rows_from, words_of
from millwheel.core.formats.store_layout import NUMBERS, STATE, key_prefix, pack
from millwheel.core.model.keys import key_hash
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.dictionaries import partition_of
from millwheel.engine.workers.dictionaries.numbers import Counters, Numbers
from millwheel.engine.workers.dictionaries.singles import Singles
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

PARTITIONS = 4
TTL = 80
STEP = TTL // 8


class Bench:
    """One shard, whose owner changes as often as a test wants. ``watermark``: that of its
    bundles."""

    def __init__(self, ttl_us: int | None = None, held: int = 1000) -> None:
        self.store = SimStore({})
        self._given = (ttl_us, held)
        self.watermark = MIN_TIME
        self.reopen()

    def reopen(self) -> None:
        """What was not committed is lost."""
        self.overlay = Overlay(self.store)
        self.numbers = Numbers(self.store, self.overlay, PARTITIONS, "ids-1", *self._given)

    def uncommitted(self, values: Sequence[Any], times: Sequence[int] | None = None) -> list[int]:
        """A bundle that is not committed."""
        self.numbers.forget(self.watermark)
        ids = []
        if values:
            partitions = np.array([partition_of(value, PARTITIONS) for value in values], np.int64)
            at = np.maximum(np.array(times or [0] * len(values), np.int64), self.watermark)
            ids = self.numbers.of(words_of(values), partitions, at, lambda: values).tolist()
        self.numbers.write()
        return ids

    def of(self, values: Sequence[Any], times: Sequence[int] | None = None) -> list[int]:
        """The ids that one bundle gives."""
        ids = self.uncommitted(values, times)
        self.store.apply(*self.overlay.take())
        return ids


VALUES = st.one_of(st.integers(0, 30), st.text("ab", max_size=3), st.binary(max_size=2))


@given(
    st.lists(st.tuples(st.lists(VALUES, max_size=30), st.booleans())),
    st.sampled_from([3, 20, 1000]),
)
@settings(max_examples=50, deadline=None)
def test_a_value_has_one_number_and_a_number_one_value(
    bundles: list[tuple[list[Any], bool]], held: int
) -> None:
    bench = Bench(held=held)
    known: dict[Any, int] = {}
    for values, again in bundles:
        for value, number in zip(values, bench.of(values), strict=True):
            assert known.setdefault((type(value), value), number) == number
        if again:
            bench.reopen()
    for at in range(PARTITIONS):
        mine = [
            number for (_, value), number in known.items() if partition_of(value, PARTITIONS) == at
        ]
        assert sorted(mine) == [at + PARTITIONS * number for number in range(len(mine))]


def test_what_was_not_committed_is_given_again() -> None:
    bench = Bench()
    bench.of(["a", "b"])
    lost = bench.uncommitted(["c"])
    bench.reopen()
    assert bench.of(["c"]) == lost


def test_values_of_roots_from_before_runs_keep_their_numbers_and_move_into_runs() -> None:
    bench = Bench()
    at = partition_of("old", PARTITIONS)
    prefix = key_prefix(STATE, at, key_hash(at))
    old = prefix + b"i" + pack("old")
    bench.store.apply(
        [(old, pack(6)), (prefix + b"i" + pack("other"), pack(5)), (prefix + b"n", pack(7))], []
    )
    bench.reopen()
    assert bench.of(["old", "old"]) == [at + PARTITIONS * 6] * 2
    assert old not in bench.store.data
    same = next(value for value in map(str, range(99)) if partition_of(value, PARTITIONS) == at)
    assert bench.of([same]) == [at + PARTITIONS * 7]
    bench.reopen()
    assert bench.of(["old", same]) == [at + PARTITIONS * 6, at + PARTITIONS * 7]


def test_beyond_what_is_held_in_memory_values_are_entries_by_themselves() -> None:
    bench = Bench(held=10)
    first, more = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(50)]
    ids = bench.of(first) + bench.of(more)
    assert len(set(ids)) == 60
    assert sum(len(rows_from(run)) for run in dict(bench.store.scan(NUMBERS)).values()) == 10
    bench.reopen()
    assert bench.of([*first, *more]) == ids
    [new] = bench.of(["new"])
    assert new not in ids


def _lives(events: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """The value and the number of its life, of each record: written anew, one record at a time."""
    last: dict[Any, int] = {}
    life: dict[Any, int] = {}
    found = []
    for value, at in events:
        bucket = at // STEP
        if value in last and bucket - last[value] > 8:
            life[value] += 1
        life.setdefault(value, 0)
        last[value] = max(bucket, last.get(value, bucket))
        found.append((value, life[value]))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-50, 2000)), max_size=60),
    st.lists(st.integers(1, 7), min_size=60, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.integers(0, 300),
)
@settings(max_examples=60, deadline=None)
def test_a_time_to_live_is_a_matter_of_times_and_order_whatever_comes_together(
    events: list[tuple[int, int]], sizes: list[int], again: list[bool], disorder: int
) -> None:
    events = sorted(events, key=lambda event: event[1] + (event[0] * 7919) % (disorder + 1))
    wanted = _lives(events)
    bench = Bench(TTL)
    numbers: dict[tuple[Any, int], int] = {}
    rest = list(zip(events, wanted, strict=True))
    for size, anew in zip(sizes, again, strict=True):
        some, rest = rest[:size], rest[size:]
        ids = bench.of([value for (value, _), _ in some], [at for (_, at), _ in some])
        for (_, life), number in zip(some, ids, strict=True):
            assert numbers.setdefault(life, number) == number
        bench.watermark = min([at for (_, at), _ in rest], default=MAX_TIME)
        if anew:
            bench.reopen()
    assert len(set(numbers.values())) == len(numbers)
    bench.of([])
    assert len(bench.numbers._table) == 0
    assert not list(bench.store.scan(NUMBERS))


def test_a_number_that_was_forgotten_is_never_given_again() -> None:
    bench = Bench(TTL)
    given = bench.of(list(range(50)), [0] * 50)
    bench.watermark = 10_000
    bench.of([])
    assert not list(bench.store.scan(NUMBERS))
    bench.reopen()
    again = bench.of(list(range(50)), [10_000] * 50)
    assert not {*given} & {*again}
    assert len(set(again)) == 50


def test_it_is_due_when_the_oldest_bucket_can_be_found_no_more() -> None:
    bench = Bench(TTL)
    assert bench.numbers.due_at() == MAX_TIME
    bench.of(["a", "b"], [STEP + 3, 5 * STEP])
    assert bench.numbers.due_at() == 10 * STEP - 1
    bench.watermark = 10 * STEP - 1
    bench.of([])
    assert len(bench.numbers._table) == 2
    bench.watermark = 10 * STEP
    bench.of([])
    assert len(bench.numbers._table) == 1
    assert bench.numbers.due_at() == 14 * STEP - 1


@pytest.mark.parametrize("ttl", [1, 7, 80])
def test_times_at_the_ends_of_time_have_numbers(ttl: int) -> None:
    bench = Bench(ttl)
    assert len(set(bench.of(["a", "b", "a"], [MIN_TIME, MAX_TIME - 1, MAX_TIME - 1]))) == 3


@given(
    ttl=st.sampled_from([1, 7, 80, 10**15]),
    at=st.lists(
        st.one_of(st.integers(MIN_TIME, MAX_TIME), st.integers(2**61 - 200, 2**61 + 200)),
        min_size=1,
        max_size=4,
    ),
    watermark=st.one_of(
        st.integers(MIN_TIME, MAX_TIME), st.integers(2**61 - 200, 2**61 + 200), st.just(MAX_TIME)
    ),
)
@example(ttl=TTL, at=[2**61 + 5], watermark=MAX_TIME)
def test_what_is_due_is_forgotten_at_once_so_that_the_shard_comes_to_rest(
    ttl: int, at: list[int], watermark: int
) -> None:
    bench = Bench(ttl)
    bench.of(list(range(len(at))), at)
    bench.watermark = watermark
    bench.of([])
    assert bench.numbers.due_at() >= watermark


def _opened(store: SimStore, counted: Sequence[int] = (0,) * 5) -> tuple[Counters, Overlay]:
    overlay = Overlay(store)
    return Counters(np.array(counted, np.int64), Singles(store, overlay)), overlay


@given(st.lists(st.lists(st.integers(0, 4), max_size=20)))
def test_each_partition_counts_for_itself_in_the_order_of_the_values(
    bundles: list[list[int]],
) -> None:
    counters, _ = _opened(SimStore({}))
    counted = [0] * 5
    for bundle in bundles:
        numbers = counters.next(np.array(bundle, np.int64)).tolist()
        for partition, number in zip(bundle, numbers, strict=True):
            assert number == counted[partition]
            counted[partition] += 1


def test_it_goes_on_behind_what_runs_tell_and_what_is_stored() -> None:
    store = SimStore({})
    first, overlay = _opened(store, [0, 8, 1, 0, 0])
    assert first.next(np.array([1, 2, 3, 1])).tolist() == [8, 1, 0, 9]
    first.store(np.array([1, 3]))
    first.write()
    store.apply(*overlay.take())
    later, _ = _opened(store, [0, 0, 0, 21, 0])
    assert later.next(np.array([3, 2, 1])).tolist() == [21, 0, 10]
