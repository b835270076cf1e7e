from __future__ import annotations

from typing import Any

from millwheel.workers.operators.window_cells import WindowCells
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

ROOM = 10_000


def cells(limit: int = 100, most: int = ROOM) -> tuple[WindowCells, Overlay]:
    overlay = Overlay(SimStore({}))
    return WindowCells(overlay, limit, most), overlay


def test_slots_of_keys_are_apart_and_an_empty_one_has_the_default() -> None:
    made, _ = cells()
    made.of("a")[(0, 10)] = [1]
    assert made.of("a").get((0, 10)) == [1]
    assert (made.of("b").get((0, 10)), made.of("a").get((10, 20), "none")) == (None, "none")


def test_what_was_flushed_is_there_for_the_next_owner_and_what_was_deleted_is_not() -> None:
    made, overlay = cells()
    mine = made.of("a")
    mine["kept"], mine["gone"] = 1, 2
    made.flush()
    del mine["gone"]
    made.flush()
    later = WindowCells(overlay, 100, ROOM).of("a")
    assert (later.get("kept"), later.get("gone")) == (1, None)


def test_what_was_not_flushed_is_dropped_and_read_again_from_the_store() -> None:
    made, _ = cells()
    mine = made.of("a")
    mine["slot"] = [1]
    made.flush()
    mine.get("slot").append(2)
    mine["slot"] = [1, 2]
    made.drop("a")
    made.flush()
    assert made.of("a").get("slot") == [1]


def test_what_cannot_be_stored_is_what_it_was_before() -> None:
    for bad in (object(), "x" * 200):
        made, _ = cells(most=100)
        mine: Any = made.of("a")
        mine["slot"] = "good"
        made.flush()
        mine["slot"] = bad
        made.flush()
        [(key, slot, why)] = made.unstorable
        assert (key, slot, mine.get("slot")) == ("a", "slot", "good")
        assert why


def test_one_slot_that_cannot_be_stored_costs_no_other() -> None:
    made, overlay = cells()
    mine: Any = made.of("a")
    mine["bad"], mine["good"] = object(), 1
    made.flush()
    assert WindowCells(overlay, 100, ROOM).of("a").get("good") == 1


def test_the_cache_is_trimmed_and_forgets_nothing() -> None:
    made, _ = cells(limit=4)
    for number in range(10):
        made.of(number)["slot"] = number
        made.flush()
    assert len(made._cells) <= 4
    assert [made.of(number).get("slot") for number in range(10)] == list(range(10))
