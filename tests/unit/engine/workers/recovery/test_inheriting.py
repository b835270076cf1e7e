from __future__ import annotations

from typing import Any

import msgspec
import polars as pl
import pytest

from millwheel.core.columns.batch import key_list
from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.formats.id_runs import marks_from, marks_of, run_key
from millwheel.core.formats.store_layout import (
    CHANNEL,
    META,
    PENDING,
    RUNS,
    SEEN,
    STATE,
    WAITING,
    Meta,
    decode_meta,
    encode_meta,
    key_prefix,
    number8,
    pack,
)
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import Parent, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.engine.workers.delivery.high_water_marks import (
    HighWaterMarks,
    decode_high_water_marks,
)
from millwheel.engine.workers.recovery.inheriting import Estate, inherit
from millwheel.engine.workers.recovery.recovery import recover
from millwheel.engine.workers.state.column_segments import Segment, segment_entry, segments_within
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.waiting_records import (
    ORDER_TAG,
    WaitingRecord,
    WaitingRecords,
    waiting_records,
)
from millwheel.errors import CorruptionError
from tests.fakes.plain_storage import CHECKPOINTS, SimJournals, SimSnapshots, SimStore, SimStores

LOWER, UPPER = tile(2)
KEYS = [f"k{n}" for n in range(8)]
IN_LOWER = [key for key in KEYS if key_hash(key) in LOWER]
IN_UPPER = [key for key in KEYS if key_hash(key) in UPPER]


def frame(*rows: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame({KEY: [key for key, _ in rows], END: [end for _, end in rows]})


def content(
    shard: str, keys: list[str], meta: Meta, mark: int, *segments: pl.DataFrame
) -> dict[bytes, bytes]:
    data = {key_prefix(STATE, key, key_hash(key)) + b"state": key.encode() for key in keys}
    data |= {SEEN + number8(0) + key_hash(key).to_bytes(8, "big") + b"id": b"" for key in keys}
    data |= {
        CHANNEL + b"up-0": pack(mark),
        PENDING + number8(3): b"third",
        PENDING + number8(9): b"ninth",
    }
    data |= dict(
        segment_entry(shard, number, Segment(number, segment))
        for number, segment in enumerate(segments)
    )
    return data | {META: encode_meta(meta)}


class Parents:
    """Parents with their whole stores; ``child`` makes the store of a successor."""

    def __init__(self, *stores: tuple[KeyRange, dict[bytes, bytes]]) -> None:
        self.stores = [
            (Parent(f"n-{store_key}", piece, 1, decode_meta(data[META]).number), data)
            for store_key, (piece, data) in enumerate(stores)
        ]

    def child(self, piece: KeyRange, shard: str = "n-7") -> SimStore:
        store = SimStore({})
        estates = []
        for parent, data in self.stores:
            whole = SimStore({})
            whole.apply(data.items(), [])
            estates.append(Estate.of(parent, whole, piece))
        entry = ShardEntry(shard, piece, "w", 2, parents=tuple(parent for parent, _ in self.stores))
        inherit(entry, estates, store)
        return store


def family(store: SimStore, of: bytes) -> list[bytes]:
    return [value for store_key, value in store.scan(of)]


def meta_of(store: SimStore) -> Meta:
    data = store.get(META)
    assert data is not None
    return decode_meta(data)


def test_a_split_divides_what_has_a_key_and_copies_the_marks() -> None:
    parents = Parents((KeyRange(0, SPACE), content("n-0", KEYS, Meta(number=5, counters={}), 17)))
    for piece, keys in ((LOWER, IN_LOWER), (UPPER, IN_UPPER)):
        child = parents.child(piece)
        assert sorted(family(child, STATE)) == sorted(key.encode() for key in keys)
        assert len(family(child, SEEN)) == len(keys)
        assert child.get(CHANNEL + b"up-0") == pack(17)
        assert meta_of(child).number == 5


def test_records_that_wait_go_to_the_heirs_of_their_keys_and_are_together_again() -> None:
    store = SimStore({})
    overlay = Overlay(store)
    records = WaitingRecords(overlay)
    rows = [
        WaitingRecord(key, f"{ORDER_TAG}1up:{at:020d}", at, "s", msgspec.Raw(b"\x01"))
        for at, key in enumerate(KEYS)
    ]
    for row in rows:
        records.keep(row)
    records.write()
    store.apply(*overlay.take())
    meta = {META: encode_meta(Meta(number=5, counters={}))}
    whole = Parents((KeyRange(0, SPACE), dict(store.scan(WAITING)) | meta))
    successors = [whole.child(LOWER), whole.child(UPPER)]
    for successor, keys in zip(successors, (IN_LOWER, IN_UPPER), strict=True):
        assert [row.key for row in waiting_records(successor)] == keys
    lower, upper = (dict(successor.scan(WAITING)) | meta for successor in successors)
    merged = Parents((LOWER, lower), (UPPER, upper)).child(KeyRange(0, SPACE))
    assert sorted(waiting_records(merged), key=lambda row: row.at) == rows


def test_runs_of_ids_are_cut_to_the_heir_and_become_whole_again() -> None:
    def run(number: int, keys: list[str], writer: str = "n-0") -> dict[bytes, bytes]:
        digests = [f"{key:016}".encode() for key in keys]
        return {
            run_key(60, number, writer): marks_of(
                [key_hash(key) for key in keys], digests
            ).tobytes()
        }

    def ids(store: SimStore) -> list[bytes]:
        return sorted(
            mark.tobytes()[8:] for _, found in store.scan(RUNS) for mark in marks_from(found)
        )

    meta = {META: encode_meta(Meta(number=5, counters={}))}
    whole = Parents((KeyRange(0, SPACE), run(3, KEYS) | run(4, IN_LOWER[:1]) | meta))
    assert ids(whole.child(LOWER)) == sorted(
        f"{key:016}".encode() for key in [*IN_LOWER, IN_LOWER[0]]
    )
    assert ids(whole.child(UPPER)) == sorted(f"{key:016}".encode() for key in IN_UPPER)
    lower, upper = (
        run(3, IN_LOWER) | run(5, IN_LOWER, "n-1"),
        run(3, IN_UPPER) | run(5, IN_UPPER, "n-2"),
    )
    merged = Parents((LOWER, lower | meta), (UPPER, upper | meta)).child(KeyRange(0, SPACE))
    assert ids(merged) == sorted(f"{key:016}".encode() for key in KEYS + KEYS)
    runs = [(run_key(60, 3, "n-0"), len(KEYS)), (run_key(60, 5, "n-1"), len(IN_LOWER))]
    runs.append((run_key(60, 5, "n-2"), len(IN_UPPER)))
    assert [(store_key, len(marks_from(found))) for store_key, found in merged.scan(RUNS)] == runs


def test_what_has_no_key_goes_to_the_child_with_the_lowest_keys_alone() -> None:
    meta = Meta(
        number=5, next_seq=40, next_chunk=10, counters={"dead_letters": 3}, watermark=60, floor=7
    )
    parents = Parents((KeyRange(0, SPACE), content("n-0", KEYS, meta, 17)))
    lower, upper = parents.child(LOWER), parents.child(UPPER)
    assert dict(lower.scan(PENDING)) == {
        PENDING + number8(1): b"third",
        PENDING + number8(2): b"ninth",
    }
    assert meta_of(lower) == Meta(5, 1, 3, {"dead_letters": 3}, 60, 7, closed=60)
    assert family(upper, PENDING) == []
    assert meta_of(upper) == Meta(5, 1, 1, {}, 60, 7, closed=60)


def test_a_merge_keeps_a_mark_for_each_half_and_all_that_is_pending() -> None:
    one = content("n-0", IN_LOWER, Meta(number=5, counters={"a": 1}, watermark=60, floor=9), 17)
    two = content("n-1", IN_UPPER, Meta(number=8, counters={"a": 2}, watermark=40, floor=2), 12)
    child = Parents((LOWER, one), (UPPER, two)).child(KeyRange(0, SPACE))
    assert len(family(child, STATE)) == len(KEYS)
    mark = child.get(CHANNEL + b"up-0")
    assert mark is not None
    assert decode_high_water_marks(mark) == HighWaterMarks(((LOWER, 17), (UPPER, 12)))
    assert family(child, PENDING) == [b"third", b"ninth", b"third", b"ninth"]
    assert meta_of(child) == Meta(8, 1, 5, {"a": 3}, 60, 9, closed=40)


def test_columnar_segments_are_cut_to_the_range_and_to_what_their_shard_had_open() -> None:
    one = frame(*((key, end) for key in IN_LOWER for end in (50, 70)))
    two = frame(*((key, end) for key in IN_UPPER for end in (50, 70)))
    parents = Parents(
        (LOWER, content("n-0", [], Meta(number=5, counters={}, watermark=60), 1, one)),
        (UPPER, content("n-1", [], Meta(number=8, counters={}, watermark=40), 1, two)),
    )
    child = parents.child(KeyRange(0, SPACE))
    found = pl.concat(
        [segment.groups for segment in segments_within(child, KeyRange(0, SPACE), -1)]
    )
    wanted = [
        *((key, 70) for key in IN_LOWER),
        *((key, end) for key in IN_UPPER for end in (50, 70)),
    ]
    assert sorted(found.iter_rows()) == sorted(wanted)


def test_columnar_segments_of_keys_of_two_fields_are_cut_down_as_others_are() -> None:
    keys = [(text, number) for text in ("a", "b") for number in range(4)]
    groups = pl.DataFrame({"k": [text for text, _ in keys], "n": [number for _, number in keys]})
    segment = pl.DataFrame([groups.to_struct(KEY), pl.Series(END, [50] * len(keys))])
    parents = Parents(
        (
            KeyRange(0, SPACE),
            content("n-0", [], Meta(number=5, counters={}, watermark=40), 1, segment),
        )
    )
    for half in (LOWER, UPPER):
        [segment] = segments_within(parents.child(half), half, -1)
        found = segment.groups
        assert key_list(found[KEY]) == [key for key in keys if key_hash(key) in half]


def recovered(snapshots: SimSnapshots, last_commit: int) -> Any:
    entry = ShardEntry(
        "n-7", LOWER, "w", 4, parents=(Parent("n-0", KeyRange(0, SPACE), 3, last_commit),)
    )
    return recover(entry, SimStores(), snapshots, SimJournals(), "/scratch")


def test_recovery_makes_the_store_of_a_child_from_its_parents_last_snapshot() -> None:
    snapshots = SimSnapshots()
    CHECKPOINTS["made"] = content("n-0", KEYS, Meta(number=5, counters={}), 17)
    snapshots.publish("n-0", 3, 5, "made", lambda: None)
    assert sorted(family(recovered(snapshots, 5), STATE)) == sorted(
        key.encode() for key in IN_LOWER
    )


def test_recovery_refuses_a_parents_snapshot_that_is_not_its_last() -> None:
    snapshots = SimSnapshots()
    CHECKPOINTS["made"] = content("n-0", KEYS, Meta(number=5, counters={}), 17)
    snapshots.publish("n-0", 3, 5, "made", lambda: None)
    with pytest.raises(CorruptionError, match="released after commit 6"):
        recovered(snapshots, 6)


def test_a_parent_that_never_committed_leaves_nothing() -> None:
    assert family(recovered(SimSnapshots(), 0), STATE) == []
