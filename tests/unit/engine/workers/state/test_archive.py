"""An archive gives back what it was given, and reads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.pairs import AT
from millwheel.core.columns.state.near_pairs import Bounds, NearPairing
from millwheel.core.formats.store_layout import ARCHIVE, ARCHIVE_BLOCK
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.engine.workers.state import archive
from millwheel.engine.workers.state.archive import Archive, archives_within, validate_archive
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import CorruptionError, InvariantError
from tests.fakes.plain_storage import SimStore

NEVER = Bounds(None, None)
PAIRING = NearPairing(("shown", "clicked"), ({"n": "int"}, {"n": "int"}), ("ad",), (NEVER, NEVER))
WHOLE = KeyRange(0, SPACE)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_BLOCK_BYTES", 200)
    monkeypatch.setattr(archive, "_AT_ONCE", 2)


def kept(side: int, *rows: tuple[Any, int]) -> pl.DataFrame:
    """Records of a key and a number each, as a join keeps them."""
    keys = pl.Series(KEY, [key for key, _ in rows])
    numbers = [number for _, number in rows]
    return PAIRING.recalled(
        side, keys, numbers, [b"\x81\xa1n" + bytes([number]) for number in numbers]
    )


def many(side: int, first: int = 0, count: int = 60) -> pl.DataFrame:
    return kept(side, *((number % 40, number) for number in range(first, first + count)))


def commit(overlay: Overlay, store: SimStore) -> None:
    store.apply(*overlay.take())


def archived(*groups: pl.DataFrame) -> tuple[Archive, SimStore]:
    store = SimStore({})
    found, overlay = Archive("n-0", store), Overlay(store)
    for each in groups:
        found.add([each], overlay)
    commit(overlay, store)
    return found, store


def rows(frames: Sequence[pl.DataFrame]) -> Counter[tuple[Key, int]]:
    return Counter(row for frame in frames for row in frame.select(KEY, AT).iter_rows())


def of_keys(found: Archive, keys: Sequence[Key], side: int, store: Any) -> Counter[Any]:
    return rows(found.of_keys([pl.Series(list(keys))], side, store))


def test_records_come_back_by_key_and_input_as_they_were() -> None:
    shown, clicked = many(0), many(1, 60)
    found, store = archived(shown, clicked, many(0, 60, 7))
    assert found
    [some] = found.of_keys([pl.Series([3, 999])], 1, store)
    assert some.equals(clicked.filter(pl.col(KEY) == 3).select(some.columns))
    assert set(some.columns) == set(clicked.columns)
    assert of_keys(found, [3, 26], 0, store) == {(3, 3): 1, (3, 43): 1, (26, 26): 1, (26, 66): 1}
    assert rows(found.all_records(store)) == rows([shown, clicked, many(0, 60, 7)])


def test_a_new_owner_has_the_same() -> None:
    _, store = archived(many(0), many(1))
    found, overlay = Archive("n-0", store), Overlay(store)
    assert of_keys(found, range(40), 0, store) == rows([many(0)])
    found.add([many(0, 60, 9)], overlay)
    assert of_keys(found, range(40), 0, overlay) == rows([many(0), many(0, 60, 9)])
    commit(overlay, store)
    validate_archive(found, store)
    assert of_keys(Archive("n-0", store), range(40), 0, store) == rows([many(0, 0, 69)])


def test_only_blocks_that_may_have_a_key_are_read() -> None:
    read: list[bytes] = []

    class Counted(SimStore):
        def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
            read.extend(keys)
            return super().get_many(keys)

    found, store = archived(many(0), many(1))
    counted = Counted({})
    counted.apply(list(store.scan(b"")), [])
    assert len(list(store.scan(ARCHIVE_BLOCK))) > 10
    assert not of_keys(found, range(100, 200), 0, counted)
    assert not read
    assert of_keys(found, [7], 0, counted) == {(7, 7): 1, (7, 47): 1}
    assert len(read) == 1


def test_what_is_taken_out_is_gone_and_the_rest_stays() -> None:
    found, store = archived(many(0), many(1))
    overlay = Overlay(store)
    taken = found.taken_out([pl.Series([3, 5])], overlay)
    wanted = rows([each.filter(pl.col(KEY).is_in([3, 5])) for each in (many(0), many(1))])
    assert rows(taken) == wanted
    assert not found.taken_out([pl.Series([3, 5])], overlay)
    commit(overlay, store)
    for again in (found, Archive("n-0", store)):
        assert rows(again.all_records(store)) + wanted == rows([many(0), many(1)])
    found.taken_out([pl.Series(range(40))], overlay)
    commit(overlay, store)
    assert not list(store.scan(ARCHIVE_BLOCK))


def test_records_of_both_inputs_and_forms_may_leave_together() -> None:
    both = pl.concat([many(0), many(1)], how="diagonal")
    encoded = PAIRING.encoded([(0, "a key", 5, -1, 1, b"\x80"), (1, (1, "b"), 6, -1, 1, b"\x80")])
    encoded = encoded.with_columns(*(pl.lit(at).alias(name) for name, at in archive._ALIKE.items()))
    found, store = archived(both, encoded)
    assert len(found.names()) == 4
    assert rows(found.all_records(store)) == rows([both, encoded])
    key = encoded.filter(pl.col(AT) == 5)[KEY]
    assert rows(found.of_keys([key], 0, store)) == {(key[0], 5): 1}
    assert not found.of_keys([key], 1, store)


def test_records_with_bounds_are_no_archives() -> None:
    with pytest.raises(InvariantError, match="bounds"):
        archived(many(0).with_columns(pl.lit(7, pl.Int64).alias("last")))


@pytest.mark.parametrize("halves", [tile(2), tile(5)])
def test_shards_that_part_and_merge_have_each_record_once(halves: Sequence[KeyRange]) -> None:
    _, store = archived(many(0), many(1), many(0, 60, 9))
    everything = rows([many(0, 0, 69), many(1)])
    parts = [successor("n-1", [(store, half)]) for half in halves]
    for part, half in zip(parts, halves, strict=True):
        own = rows(Archive("n-1", part).all_records(part))
        assert own == {row: count for row, count in everything.items() if key_hash(row[0]) in half}
    merged = successor("n-2", list(zip(parts, halves, strict=True)))
    found = Archive("n-2", merged)
    assert rows(found.all_records(merged)) == everything
    assert of_keys(found, range(40), 0, merged) == rows([many(0, 0, 69)])
    validate_archive(found, merged)


def successor(shard: str, parents: Sequence[tuple[SimStore, KeyRange]]) -> SimStore:
    def entries() -> Iterator[tuple[bytes, bytes]]:
        number = 0
        for store, share in parents:
            for entry in archives_within(shard, store, share, number):
                number += entry[0].startswith(ARCHIVE)
                yield entry

    own = SimStore({})
    own.apply(list(entries()), [])
    return own


def test_a_damaged_segment_is_told() -> None:
    store = SimStore({})
    store.apply([(key, b"\x01") for key, _ in archived(many(0))[1].scan(ARCHIVE)], [])
    with pytest.raises(CorruptionError):
        Archive("n-0", store)


def test_the_order_of_hashes_is_that_of_the_ranges_of_shards() -> None:
    _, store = archived(many(0))
    [(store_key, data)] = store.scan(ARCHIVE)
    halves = archive.ArchiveSegment.of(store_key, data).halves.tolist()
    assert halves == sorted({key_hash(key) >> 32 for key in range(40)})
