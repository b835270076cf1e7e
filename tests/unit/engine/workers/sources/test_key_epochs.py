from __future__ import annotations

import msgspec

from millwheel.connect.sources.base import Partition
from millwheel.core.formats.store_layout import KEY_EPOCHS, Position, decode_position, number8, pack
from millwheel.core.grouping.epochs import EPOCH_US, Epoch, Rule
from millwheel.core.grouping.tables import EpochTable
from millwheel.core.model.times import SECOND
from millwheel.engine.workers.sources.key_epochs import (
    delete_epochs,
    open_key_epochs,
    stored_epochs,
    write_epoch,
)
from millwheel.engine.workers.sources.partition import Part, open_part
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

KEYS = ["a", 7, b"b", ("c", 1)]
RULES = {"n": Rule("auto", 2), "t": Rule("tag", 3), "m": Rule("auto", 2)}


def hot(first: int, *keys: object) -> EpochTable:
    return EpochTable(0, first + 1, (1.0, 1.0), dict.fromkeys(keys, (0, 1)))


EPOCHS = [
    Epoch(0, 9, {"n": hot(0, *KEYS)}),
    Epoch(
        9,
        300,
        {
            "n": hot(9),
            "m": hot(9, "x"),
            "t": EpochTable(4, 10, (1.5, 0.1, 3e9), {("a", 1): (2, 0), "b": (1,)}, (0, 2, 1)),
        },
    ),
]


def stored(*epochs: Epoch, partition: str = "p") -> SimStore:
    store = SimStore({})
    overlay = Overlay(store)
    for epoch in epochs:
        write_epoch(epoch, RULES, partition, overlay)
    store.apply(*overlay.take())
    return store


def test_epochs_are_read_as_they_were_written_in_order() -> None:
    assert stored_epochs("p", stored(*reversed(EPOCHS)), RULES) == EPOCHS
    assert stored_epochs("q", stored(*EPOCHS), RULES) == []


def test_epochs_of_hot_keys_alone_have_been_written_otherwise_and_are_still_read() -> None:
    """And so are positions without counts."""
    old = pack([9, {"n": [b"\xa1a", b"\x07"]}])
    found = stored_epochs("p", SimStore({KEY_EPOCHS + pack("p") + number8(0): old}), RULES)
    assert found == [Epoch(0, 9, {"n": hot(0, "a", 7)})]
    assert decode_position(msgspec.msgpack.encode([5, 6, True, b"", False])) == Position(
        5, 6, True, counts={}
    )


def test_epochs_can_be_dropped() -> None:
    store = stored(*EPOCHS)
    overlay = Overlay(store)
    delete_epochs(EPOCHS[:1], "p", overlay)
    store.apply(*overlay.take())
    assert stored_epochs("p", store, RULES) == EPOCHS[1:]


def test_only_where_a_consumer_divides_keys_by_tables_are_there_any() -> None:
    assert open_key_epochs({}, "p", stored(*EPOCHS), 0, {}) is None
    found = open_key_epochs({"n": RULES["n"]}, "p", stored(*EPOCHS), 0, {})
    assert found is not None
    assert found.are_hot("n", ["a", "a"], [9, 10]) == [True, False]


def part(store: SimStore, rule: Rule = RULES["n"]) -> Part:
    return open_part(Partition("p"), "source.s/p", store, Silence(SECOND, 0), False, {"n": rule})


def test_a_partition_stores_what_it_will_be_routed_by_and_drops_what_was_applied() -> None:
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    assert one.epochs is not None
    assert one.extend_epochs(10, overlay, 0)
    one.epochs.moved(10)
    assert one.extend_epochs(20, overlay, 0)
    one.epochs.moved(20)
    assert not one.extend_epochs(30, overlay, 0)
    store.apply(*overlay.take())
    assert [(each.first, each.last) for each in stored_epochs("p", store, RULES)] == [
        (0, 10),
        (10, 30),
    ]
    assert not part(store).extend_epochs(30, Overlay(store), 0)
    one.committed = Position(10)
    one.write(overlay)
    store.apply(*overlay.take())
    assert [each.first for each in stored_epochs("p", store, RULES)] == [10]


def test_the_first_read_of_a_partition_is_short_where_keys_are_divided_by_tables() -> None:
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    whole = open_part(Partition("p"), "source.s/p", store, Silence(SECOND, 0), False, {})
    assert (one.most_records(20_000), one.most_records(5), whole.most_records(20_000)) == (
        2_000,
        5,
        20_000,
    )
    assert one.most_bytes < whole.most_bytes == whole.size.bytes
    one.extend_epochs(10, overlay, 0)
    assert (one.most_records(20_000), one.most_bytes) == (20_000, one.size.bytes)


def test_counts_are_committed_with_their_position_and_the_next_owner_continues_them() -> None:
    store, rule = SimStore({}), Rule("shuffle", 3)
    one, overlay = part(store, rule), Overlay(store)
    assert one.epochs is not None
    for begin, end in ((0, 1), (1, 4), (4, 7)):
        one.extend_epochs(end, overlay, 0)
        one.epochs.choose("n", ["a"] * (end - begin), range(begin + 1, end + 1))
        one.epochs.moved(end)
        if end == 4:
            one.position = end
            one.committed = one.after()
    one.write(overlay)
    store.apply(*overlay.take())
    again = part(store, rule)
    assert (again.position, again.committed.counts) == (4, {"n": [1, 1, 1]})
    assert again.epochs is not None
    assert again.epochs.choose("n", ["a"] * 2, [5, 6]) == [0, 1]


def test_an_epoch_that_time_ends_is_stored_with_the_next_one() -> None:
    store, rule = SimStore({}), Rule("tag", 2)
    one, overlay = part(store, rule), Overlay(store)
    assert one.epochs is not None
    for end in (20, 40, 60):
        one.extend_epochs(end, overlay, 0)
        one.epochs.choose("n", ["a"] * 20, range(end - 19, end + 1))
        one.epochs.moved(end)
    assert one.extend_epochs(80, overlay, EPOCH_US)
    store.apply(*overlay.take())
    ends = [(each.first, each.last) for each in stored_epochs("p", store, {"n": rule})]
    assert ends == [(0, 20), (20, 60), (60, 80 + 3 * 20)]
