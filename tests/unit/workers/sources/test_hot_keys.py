from __future__ import annotations

from millwheel.core.formats.store_layout import Position
from millwheel.core.grouping.hot_keys import Epoch
from millwheel.core.model.times import SECOND
from millwheel.sources.base import Partition
from millwheel.workers.sources.hot_keys import delete_epochs, open_hot_keys, stored_epochs, write_epoch
from millwheel.workers.sources.partition import Part, open_part
from millwheel.workers.sources.silence import Silence
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

KEYS = frozenset({"a", 7, b"b", ("c", 1)})
EPOCHS = [Epoch(0, 9, {"n": KEYS}), Epoch(9, 300, {"n": frozenset(), "m": frozenset({"x"})})]


def stored(*epochs: Epoch, partition: str = "p") -> SimStore:
    store = SimStore({})
    overlay = Overlay(store)
    for epoch in epochs:
        write_epoch(epoch, partition, overlay)
    store.apply(*overlay.take())
    return store


def test_epochs_are_read_as_they_were_written_in_order() -> None:
    assert stored_epochs("p", stored(*reversed(EPOCHS))) == EPOCHS
    assert stored_epochs("q", stored(*EPOCHS)) == []


def test_epochs_can_be_dropped() -> None:
    store = stored(*EPOCHS)
    overlay = Overlay(store)
    delete_epochs(EPOCHS[:1], "p", overlay)
    store.apply(*overlay.take())
    assert stored_epochs("p", store) == EPOCHS[1:]


def test_only_where_a_consumer_divides_hot_keys_are_there_any() -> None:
    assert open_hot_keys({}, "p", stored(*EPOCHS), 0) is None
    found = open_hot_keys({"n": 2}, "p", stored(*EPOCHS), 0)
    assert found is not None
    assert found.are_hot("n", ["a", "a"], [9, 10]) == [True, False]


def part(store: SimStore) -> Part:
    return open_part(Partition("p"), "source.s/p", store, Silence(SECOND, 0), False, {"n": 2})


def test_a_partition_stores_what_it_will_be_routed_by_and_drops_what_was_applied() -> None:
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    assert one.extend_hot_keys(10, overlay)
    assert one.extend_hot_keys(20, overlay)
    assert not one.extend_hot_keys(30, overlay)
    store.apply(*overlay.take())
    assert [(each.first, each.last) for each in stored_epochs("p", store)] == [(0, 10), (10, 30)]
    assert not part(store).extend_hot_keys(30, Overlay(store))
    one.committed = Position(10)
    one.write(overlay)
    store.apply(*overlay.take())
    assert [each.first for each in stored_epochs("p", store)] == [10]


def test_the_first_read_of_a_partition_is_short_where_only_hot_keys_are_divided() -> None:
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    whole = open_part(Partition("p"), "source.s/p", store, Silence(SECOND, 0), False, {})
    assert (one.most_records(20_000), one.most_records(5), whole.most_records(20_000)) == (2_000, 5, 20_000)
    assert one.most_bytes < whole.most_bytes == whole.size.bytes
    one.extend_hot_keys(10, overlay)
    assert (one.most_records(20_000), one.most_bytes) == (20_000, one.size.bytes)
