from __future__ import annotations

import pytest

from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.core.formats.store_layout import WINDOW, WINDOW_SET, key_prefix, pack
from millwheel.core.model.keys import key_hash
from millwheel.engine.workers.operators.windows.table import WindowCells
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.window_sets import ReadSets, WindowSets, read_window
from millwheel.errors import CorruptionError, InvariantError
from tests.fakes.plain_storage import SimStore

MOST = 2_000
STORE_KEY = key_prefix(WINDOW, "a", key_hash("a")) + pack((0, 10))


def _cells(store: dict[bytes, bytes]) -> tuple[WindowCells, Overlay]:
    overlay = Overlay(SimStore(store))
    return WindowCells(overlay, 100, MOST), overlay


def _flush(cells: WindowCells, overlay: Overlay, store: dict[bytes, bytes]) -> int:
    """Flush and commit; returns the bytes written."""
    cells.flush()
    assert not cells.unstorable
    puts, deletes = overlay.take()
    store.update(puts)
    for key in deletes:
        store.pop(key, None)
    return sum(len(value) for _, value in puts)


def _entries(store: dict[bytes, bytes]) -> list[bytes]:
    return [key for key in store if key.startswith(WINDOW_SET)]


def _large(count: int = 200_000) -> Distinct:
    made = Distinct()
    made.update(range(0, 3 * count, 3))
    return made


def test_a_window_may_have_sets_of_more_than_a_value_can_hold_and_the_next_owner_has_them() -> None:
    store: dict[bytes, bytes] = {}
    cells, overlay = _cells(store)
    cells.of("a")[(0, 10)] = [_large()]
    assert _flush(cells, overlay, store) > MOST
    assert _entries(store)
    later, overlay = _cells(store)
    [found] = later.of("a").get((0, 10))
    found.add(1)
    later.of("a")[(0, 10)] = [found]
    assert _flush(later, overlay, store) < 200
    [again] = _cells(store)[0].of("a").get((0, 10))
    assert len(again) == 200_001
    assert again == found


def test_the_entries_go_with_the_window_also_where_nobody_has_read_it() -> None:
    for read_first in (True, False):
        store: dict[bytes, bytes] = {}
        cells, overlay = _cells(store)
        cells.of("a")[(0, 10)] = [_large()]
        cells.of("b")[(0, 10)] = [_large(9_000)]
        _flush(cells, overlay, store)
        before = len(_entries(store))
        later, overlay = _cells(store)
        if read_first:
            later.of("a").get((0, 10))
        del later.of("a")[(0, 10)]
        _flush(later, overlay, store)
        left = _entries(store)
        assert 0 < len(left) < before
        assert all(key.startswith(key_prefix(WINDOW_SET, "b", key_hash("b"))) for key in left)


def test_a_set_that_moves_to_another_window_is_there_whole_though_its_old_entries_go() -> None:
    store: dict[bytes, bytes] = {}
    cells, overlay = _cells(store)
    cells.of("a")[(0, 10)] = [_large()]
    _flush(cells, overlay, store)
    later, overlay = _cells(store)
    mine = later.of("a")
    moved = mine.get((0, 10))
    del mine[(0, 10)]
    mine[(0, 20)] = moved
    _flush(later, overlay, store)
    [found] = _cells(store)[0].of("a").get((0, 20))
    assert found == _large()
    old = WINDOW_SET + STORE_KEY.removeprefix(WINDOW)
    assert not [key for key in _entries(store) if key.startswith(old)]


def test_what_was_dropped_before_the_flush_leaves_no_entry() -> None:
    store: dict[bytes, bytes] = {}
    cells, overlay = _cells(store)
    mine = cells.of("a")
    mine[(0, 10)] = [_large()]
    _flush(cells, overlay, store)
    known = dict(store)
    mine.get((0, 10))[0].update(range(1, 90_000, 3))
    mine[(0, 10)] = mine.get((0, 10))
    cells.drop("a")
    _flush(cells, overlay, store)
    assert store == known
    assert mine.get((0, 10)) == [_large()]


def test_a_value_too_large_beside_its_sets_changes_nothing() -> None:
    store: dict[bytes, bytes] = {}
    cells, overlay = _cells(store)
    cells.of("a")[(0, 10)] = [_large()]
    _flush(cells, overlay, store)
    known = dict(store)
    cells.of("a")[(0, 10)] = [_large(), "x" * MOST]
    cells.flush()
    assert [slot for _, slot, _ in cells.unstorable] == [(0, 10)]
    assert not overlay
    assert (store, cells.of("a").get((0, 10))) == (known, [_large()])


def test_a_window_is_read_with_its_sets_from_a_view_and_a_missing_entry_is_corruption() -> None:
    store: dict[bytes, bytes] = {}
    cells, overlay = _cells(store)
    cells.of("a")[(0, 10)] = [_large()]
    _flush(cells, overlay, store)
    assert read_window(store.get, STORE_KEY) == [_large()]
    assert read_window(store.get, b"wnone") is None
    for key in _entries(store):
        del store[key]
    damaged = read_window(store.get, STORE_KEY)
    assert isinstance(damaged, list)
    with pytest.raises(CorruptionError, match="the window names it"):
        damaged[0].add(5)


def test_readers_write_nothing() -> None:
    with pytest.raises(InvariantError):
        ReadSets(STORE_KEY, {}.get).write(b"")


def test_entries_that_are_named_no_more_are_to_be_deleted() -> None:
    overlay = Overlay(SimStore({}))
    sets = WindowSets(STORE_KEY, overlay.get)
    first = sets.write(b"one")
    sets.keep(first)
    assert sets.write_to(overlay) == []
    second = sets.write(b"two")
    assert sets.read(second) == b"two"
    sets.keep(second)
    assert sets.write_to(overlay) == [WINDOW_SET + STORE_KEY.removeprefix(WINDOW) + pack(first)]
    assert (sets.read(first), sets.read(second)) == (b"one", b"two")
