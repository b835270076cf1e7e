from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel import Computation, ListState, MapState, ValueState
from millwheel.core.model.keys import stored_key
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import CorruptionError
from tests.fakes.plain_storage import SimStore


class Stats(msgspec.Struct):
    n: int = 0


class StatsWithMore(msgspec.Struct):
    n: int = 0
    mean: float = 1.5


class Everything(Computation):
    number = ValueState(int, default=7)
    stats = ValueState(Stats, default=Stats)
    items = ListState(str)
    ages = MapState(int)
    brief = ValueState(int, ttl="10s")
    brief_items = ListState(int, ttl="10s")
    brief_ages = MapState(int, ttl="10s")


class Grown(Computation):
    stats = ValueState(StatsWithMore, default=StatsWithMore)


class Bench:
    """A computation's state over a store; ``commit`` ends a bundle, ``reopen`` forgets every
    cache."""

    def __init__(self, kind: type[Computation] = Everything, store: SimStore | None = None) -> None:
        self.store = store or SimStore({})
        self.kind = kind
        self.reopen()

    def reopen(self) -> None:
        self.overlay = Overlay(self.store)
        self.it: Any = self.kind()
        self.state = KeyedState(self.it, self.overlay, cache_entries=100)
        self.queue = TimerQueue(Domain.EVENT)
        self.state.begin(self.queue)
        self.at("k", 0)

    @property
    def timers(self) -> dict[str, int]:
        return {tag: at for _, tag, at in self.queue.items()}

    def at(self, key: Any, timestamp: int) -> Any:
        self.state.point(key, timestamp)
        return self.it

    def pass_by(self, watermark: int) -> None:
        """The watermark has risen: timers that are due fire."""
        while due := self.queue.pop_due(watermark):
            self.state.point(due.key, due.at)
            self.state.expire(due.tag, due.at)
        self.commit()

    def commit(self) -> None:
        self.state.write(self.state.encoded())
        self.store.apply(*self.overlay.take())


def test_a_key_without_a_value_reads_as_the_default(bench: Bench) -> None:
    assert bench.it.number.get() == 7
    assert bench.it.stats.get() == Stats(0)
    bench.commit()
    assert not [key for key in bench.store.data if b"number" in key]


def test_values_survive_a_reopening_and_keys_are_apart(bench: Bench) -> None:
    bench.it.number.set(1)
    bench.at(("k", 2), 0).number.set(2)
    bench.commit()
    bench.reopen()
    assert bench.it.number.get() == 1
    assert bench.at(("k", 2), 0).number.get() == 2
    assert bench.at("other", 0).number.get() == 7


def test_a_value_changed_in_place_is_saved_without_set(bench: Bench) -> None:
    bench.it.stats.get().n = 5
    bench.commit()
    bench.reopen()
    assert bench.it.stats.get() == Stats(5)


def test_what_was_only_read_is_not_written_again(bench: Bench) -> None:
    bench.it.stats.get().n = 5
    bench.commit()
    bench.it.stats.get()
    bench.state.flush()
    assert not bench.overlay


def test_a_cleared_value_is_gone(bench: Bench) -> None:
    bench.it.number.set(1)
    bench.commit()
    bench.it.number.clear()
    bench.commit()
    assert bench.it.number.get() == 7
    assert not [key for key in bench.store.data if b"number" in key]


def test_a_struct_may_get_new_fields_with_defaults(bench: Bench) -> None:
    bench.it.stats.get().n = 3
    bench.commit()
    assert Bench(Grown, bench.store).it.stats.get() == StatsWithMore(3, 1.5)


def test_a_type_that_does_not_fit_is_told_by_name(bench: Bench) -> None:
    bench.it.number.set(3)
    bench.commit()

    class Changed(Computation):
        number = ValueState(str)

    with pytest.raises(CorruptionError, match="number"):
        Bench(Changed, bench.store).it.number.get()


# --- bundles --------------------------------------------------------------------------------------


class CountingStore(SimStore):
    """Knows how it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.single, self.together = 0, 0

    def get(self, key: bytes) -> bytes | None:
        self.single += 1
        return super().get(key)

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.together += len(keys)
        return super().get_many(keys)


def bundle(bench: Bench, keys: range, *, ask: bool = True) -> int:
    """One bundle that counts each key; the sum of what was there before."""
    bench.state.read_ahead(list(keys))
    before = 0
    for key in keys:
        it = bench.at(key, 0)
        if ask:
            before += it.number.get()
            it.number.set(it.number.get() + 1)
    bench.commit()
    return before


def test_where_most_keys_are_asked_for_the_next_bundle_is_read_in_one_go() -> None:
    store = CountingStore()
    bench = Bench(store=store)
    assert bundle(bench, range(300)) == 300 * 7
    assert (store.single, store.together) == (300, 0)
    assert bundle(bench, range(1000, 1300)) == 300 * 7
    assert (store.single, store.together) == (300, 300)
    assert bundle(bench, range(100)) == 100 * 8, "they were dropped from the cache of 100"
    assert (store.single, store.together) == (300, 400)


def test_values_with_a_time_to_live_are_read_ahead_too_and_those_that_are_over_stay_so() -> None:
    class Brief(Computation):
        number = ValueState(int, default=0, ttl="10s")

    store = CountingStore()

    def run(at: int, keys: range) -> list[int]:
        instance = Brief()
        state = KeyedState(instance, overlay, 100)
        found = []
        for first in (keys, keys):  # the first bundle is asked for one by one
            state.begin(TimerQueue(Domain.EVENT))
            state.read_ahead(list(first))
            for key in first:
                state.point(key, at)
                found.append(instance.number.get())
                instance.number.set(instance.number.get() + 1)
                state.settle()
            state.write(state.encoded())
            store.apply(*overlay.take())
        return found

    overlay = Overlay(store)
    assert run(0, range(300)) == [0] * 300 + [1] * 300
    assert store.together > 0
    assert run(9_999_999, range(300)) == [2] * 300 + [3] * 300
    assert run(30_000_000, range(300)) == [0] * 300 + [1] * 300


def test_what_nobody_asks_for_is_not_read_ahead() -> None:
    store = CountingStore()
    bench = Bench(store=store)
    for first in (0, 300, 600):
        bundle(bench, range(first, first + 300), ask=False)
    assert (store.single, store.together) == (0, 0)


def test_reading_ahead_stops_when_nobody_asks_any_more() -> None:
    store = CountingStore()
    bench = Bench(store=store)
    bundle(bench, range(300))
    for first in range(1000, 100_000, 300):
        bundle(bench, range(first, first + 300), ask=False)
    asked = store.together
    bundle(bench, range(200_000, 200_300), ask=False)
    assert store.together == asked


def test_a_damaged_value_that_is_read_ahead_names_its_key() -> None:
    bench = Bench()
    bundle(bench, range(300))
    bench.reopen()
    bundle(bench, range(300))
    [store_key] = [
        store_key
        for store_key in bench.store.data
        if store_key.endswith(b"number\0") and stored_key(77) in store_key
    ]
    bench.store.data[store_key] = b"\xa1x"
    with pytest.raises(CorruptionError, match="of key 77 does not fit"):
        bundle(bench, range(300))


def test_large_values_are_dropped_from_the_cache_before_there_are_many() -> None:
    class Large(Computation):
        page = ValueState(bytes, default=bytes)

    bench = Bench(Large)
    pages = {key: bytes([key]) * (4 << 20) for key in range(30)}
    for key, page in pages.items():
        bench.at(key, 0).page.set(page)
        bench.commit()
        assert (
            bench.it.page.held
            == sum(len(cell.written) for cell in bench.it.page.cells.values())
            <= 32 << 20
        )
    assert len(bench.it.page.cells) < 9
    assert all(bench.at(key, 0).page.get() == page for key, page in pages.items())
