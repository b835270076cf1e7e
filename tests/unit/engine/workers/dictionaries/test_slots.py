"""The hash table of the numbers of rows."""

from __future__ import annotations

import numpy as np
import pytest

from millwheel.core.formats.number_runs import Int64s, Words
from millwheel.engine.workers.dictionaries.singles import Singles
from millwheel.engine.workers.dictionaries.slots import AT_ONCE, FREE, Slots
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def _values(count: int) -> tuple[Words, Words]:
    rng = np.random.default_rng(count)
    return rng.integers(0, 2**64, count, np.uint64), rng.integers(0, 2**64, count, np.uint64)


def _found(slots: Slots, low: Words, high: Words) -> Int64s:
    """In how many steps each row is found from its first slot, which every slot before it must not
    end."""
    rows, at, steps = np.arange(len(low)), slots.first(low, high), np.zeros(len(low), np.int64)
    left = rows
    while len(left):
        there = slots.rows(at)
        assert (there != FREE).all()
        on = there != left
        left, at = left[on], slots.after(at[on])
        steps[left] += 1
    return steps


@pytest.mark.parametrize("count", [0, 1, 1_000, 3 * AT_ONCE // 2])
def test_filled_at_once_or_bit_by_bit_all_rows_are_found_soon(count: int) -> None:
    low, high = _values(count)
    size = 1 << max(2 * count - 1, 1).bit_length()
    filled, entered = Slots(size), Slots(size)
    filled.fill(low, high)
    for start in range(0, count, 700):
        some = slice(start, min(start + 700, count))
        entered.enter(np.arange(some.start, some.stop, dtype=np.int32), low[some], high[some])
    for slots in (filled, entered):
        assert _found(slots, low, high).mean() < 1 if count else True
        assert sorted(slots.between(0, size).tolist()) == list(range(count))
        assert (slots.rows(np.arange(size)) == FREE).sum() == size - count


def test_rows_beyond_the_last_slot_go_on_from_the_first() -> None:
    low, high = np.arange(4_000, dtype=np.uint64), np.zeros(4_000, np.uint64)
    last = np.argsort(Slots(8).first(low, high), kind="stable")[-6:]
    low, high = low[last], high[last]
    slots = Slots(8)
    assert set(slots.first(low, high).tolist()) == {7}
    slots.fill(low, high)
    assert (slots.rows(np.arange(8)) >= 0).tolist() == [True] * 5 + [False] * 2 + [True]
    assert sorted(_found(slots, low, high).tolist()) == [0, 1, 2, 3, 4, 5]


def test_a_larger_table_has_the_same_order() -> None:
    low, high = _values(500)
    small, large = Slots(1 << 10), Slots(1 << 14)
    assert (large.first(low, high) >> 4 == small.first(low, high)).all()


def test_of_several_rows_for_one_slot_one_gets_it() -> None:
    slots = Slots(8)
    slots.put(np.array([3, 3, 5]), np.array([10, 11, 12]))
    assert slots.rows(np.array([3]))[0] in (10, 11)
    assert slots.rows(np.array([5, 6])).tolist() == [12, FREE]
    assert slots.size_bytes == 32


# singles.py: Values that are entries by themselves.


def test_a_number_is_found_again_by_the_next_owner_and_beyond_the_cache() -> None:
    store = SimStore({})
    overlay = Overlay(store)
    first = Singles(store, overlay, limit=4)
    assert not first.there
    assert first.of({"a": 1}) == {}
    for number in range(20):
        first.put(number % 3, f"v{number}", number)
    first.put_counted(1, 7)
    store.apply(*overlay.take())
    wanted = {f"v{number}": number % 3 for number in range(20)}
    for each in (first, Singles(store, overlay, limit=4)):
        assert each.there
        assert each.of({**wanted, "new": 0}) == {f"v{number}": number for number in range(20)}
        assert each.counted([0, 1]) == [0, 7]


def test_what_has_moved_is_not_found() -> None:
    store = SimStore({})
    overlay = Overlay(store)
    singles = Singles(store, overlay)
    singles.put(1, "a", 5)
    singles.delete(1, "a")
    assert singles.of({"a": 1}) == {}
