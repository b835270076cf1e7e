"""Values that are entries by themselves."""

from __future__ import annotations

from millwheel.engine.workers.dictionaries.singles import Singles
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


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
