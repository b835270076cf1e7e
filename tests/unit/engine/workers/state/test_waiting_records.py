"""Records that wait for the watermark: kept by bundles, taken one by one, cut to ranges."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats.codec import encode_value
from millwheel.core.formats.store_layout import WAITING
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.engine.workers.state import waiting_records as module
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.waiting_records import (
    ORDER_TAG,
    WaitingRecord,
    WaitingRecords,
    waiting_records,
    waiting_within,
)
from millwheel.errors import CorruptionError
from tests.fakes.plain_storage import SimStore


def row(at: int, key: Key = "ann", name: str = "") -> WaitingRecord:
    named = name or f"{at:020d}"
    value = msgspec.Raw(encode_value({"at": at}))
    return WaitingRecord(key, f"{ORDER_TAG}1up:{named}", at, "hits", value)


class Shard:
    """A store, and what one owner after the other has in memory of it."""

    def __init__(self, store: SimStore | None = None) -> None:
        self.store = SimStore({}) if store is None else store
        self.overlay = Overlay(self.store)
        self.waiting = WaitingRecords(self.overlay)

    def commit(self) -> None:
        self.waiting.write()
        self.store.apply(*self.overlay.take())

    def owned_anew(self) -> Shard:
        return Shard(self.store)

    def take(self, *rows: WaitingRecord) -> list[WaitingRecord | None]:
        taken = [(row, self.waiting.take(row.key, row.tag)) for row in rows]
        assert all(got is None or got == (row.stream, row.value) for row, got in taken)
        return [got and row for row, got in taken]

    def stored(self) -> list[WaitingRecord]:
        return list(waiting_records(self.store))


def kept(*rows: WaitingRecord) -> Shard:
    shard = Shard()
    for each in rows:
        shard.waiting.keep(each)
    shard.commit()
    return shard


def test_the_records_of_a_bundle_are_one_entry_in_the_order_of_their_times() -> None:
    shard = kept(row(3), row(1, "bob"), row(2, ("a", 7), "6162:2"))
    assert len(list(shard.store.scan(WAITING))) == 1
    assert shard.stored() == [row(1, "bob"), row(2, ("a", 7), "6162:2"), row(3)]


def test_a_record_that_has_come_does_not_wait_for_the_next_owner_either() -> None:
    shard = kept(row(1), row(2), row(3))
    assert shard.take(row(1)) == [row(1)]
    shard.commit()
    assert shard.stored() == [row(2), row(3)]
    successor = shard.owned_anew()
    assert successor.take(row(1), row(2), row(3)) == [None, row(2), row(3)]
    successor.commit()
    assert not list(shard.store.scan(WAITING))


def test_a_bundle_that_is_taken_back_has_kept_and_taken_nothing() -> None:
    shard = kept(row(1))
    assert shard.take(row(1)) == [row(1)]
    shard.waiting.keep(row(2))
    shard.waiting.forget()
    assert shard.take(row(2)) == [None]
    shard.commit()
    assert shard.stored() == [row(1)]
    assert shard.take(row(1)) == [row(1)]


def test_a_record_that_comes_in_its_own_bundle_is_never_stored() -> None:
    shard = Shard()
    shard.waiting.keep(row(1))
    assert shard.take(row(1)) == [row(1)]
    shard.commit()
    assert not list(shard.store.scan(WAITING))


def test_what_comes_out_of_the_order_of_a_segment_is_told_by_its_index() -> None:
    rows = [row(5, key, "same") for key in ("a", "b", "c")]
    shard = kept(*rows)
    shard.take(rows[1])
    shard.commit()
    successor = shard.owned_anew()
    assert successor.stored() == [rows[0], rows[2]]
    assert successor.take(*rows) == [rows[0], None, rows[2]]


def test_many_records_of_a_bundle_are_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    shard = kept(*map(row, range(5)))
    assert len(list(shard.store.scan(WAITING))) == 3
    assert shard.take(*map(row, range(5))) == [*map(row, range(5))]


@given(
    keys=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=30),
    come=st.integers(0, 30),
    data=st.data(),
)
def test_heirs_of_a_range_have_each_record_that_waits_once(
    keys: list[str], come: int, data: st.DataObject
) -> None:
    rows = [row(at, key) for at, key in enumerate(keys)]
    shard = Shard()
    for each in rows:
        shard.waiting.keep(each)
        if data.draw(st.booleans()):
            shard.commit()
    shard.commit()
    shard.take(*rows[:come])
    shard.commit()
    successors = []
    for piece in tile(2):
        store = SimStore({})
        store.apply(waiting_within(shard.store, piece, 0), [])
        successors.append(store)
        assert all(key_hash(each.key) in piece for each in waiting_records(store))
    merged = SimStore({})
    first = list(waiting_within(successors[0], KeyRange(0, SPACE), 0))
    merged.apply(first, [])
    merged.apply(waiting_within(successors[1], KeyRange(0, SPACE), len(first)), [])
    assert sorted(waiting_records(merged), key=lambda each: each.at) == rows[come:]


def test_a_damaged_entry_says_what_it_was() -> None:
    shard = kept(row(1))
    [(store_key, _)] = shard.store.scan(WAITING)
    shard.store.apply([(store_key, b"\xc1")], [])
    with pytest.raises(CorruptionError, match="records that wait for the watermark"):
        shard.stored()
