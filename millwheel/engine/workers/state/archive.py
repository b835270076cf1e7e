"""The archive of a shard: kept records of a join that have left memory. They stay in columns, in
the store.

Records that leave together are an *archive segment*: those of one input, in the order of the hashes
of their keys, cut between keys into *blocks* of some kilobytes. A block is an entry of the store.
In memory is the upper half of the hash of each key, which finds the block that may have the key: a
block is read when a record of such a key comes, and never otherwise.

A block is a message of Arrow, whose head the segment has once for all of them: many blocks are read
as one stream. They are not packed, for that would take three times as long to read; the store packs
what it writes to the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StateStore, StoreView
from millwheel.core.columns.batch import frame_bytes, frame_from, key_list
from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.columns.pairs import INPUT, LAST, SIDES, VALUE
from millwheel.core.columns.state.columns_to_rows import all_keys, is_among
from millwheel.core.formats.store_layout import (
    ARCHIVE,
    ARCHIVE_BLOCK,
    number8,
    number_from8,
    pack,
)
from millwheel.core.lazy_polars import pl
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import key_hash, key_hashes
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import invariant

_BLOCK_BYTES = 8 << 10
"""Bytes of the records of a block, where a key does not have more. Larger ones bring more records
that are not requested, smaller ones cost as much: some 10 µs each."""
_AT_ONCE = 1_000
"""Blocks that are read together. Of these 8 MB only the records of the requested keys stay."""
_ALIKE = {
    START: MIN_TIME,
    END: LAST_TIME + 1,
    LAST: MAX_TIME,
}
"""The bounds of all records that may meet any others, which blocks leave out."""
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Fixed: the end of a stream of Arrow
_LENGTH = slice(4, 8)  # Fixed: of the first message of a stream, behind four bytes of ones
_HALF = "half"
Halves = npt.NDArray[np.uint32]


class _Stored(msgspec.Struct, array_like=True):
    side: int
    head: bytes
    halves: bytes
    starts: bytes


_decode = checked(msgspec.msgpack.Decoder(_Stored).decode, "a segment of an archive")


@dataclass(frozen=True, slots=True)
class ArchiveSegment:
    """The records of one input that left together. ``halves`` are the upper halves of the hashes of
    its keys, in order; ``starts`` has for each block the index of its first one there. Blocks may
    have gone, or have lost records, since they were written. ``name`` is its part of the keys of
    the store."""

    name: bytes
    side: int
    head: bytes
    halves: Halves
    starts: Halves

    @property
    def entry(self) -> tuple[bytes, bytes]:
        """Its entry in the store."""
        parts = (each.astype("<u4").tobytes() for each in (self.halves, self.starts))
        return ARCHIVE + self.name, pack(_Stored(self.side, self.head, *parts))

    @staticmethod
    def of(store_key: bytes, data: bytes) -> ArchiveSegment:
        """The inverse of :attr:`entry`."""
        stored = _decode(data)
        halves, starts = (np.frombuffer(each, "<u4") for each in (stored.halves, stored.starts))
        name = store_key[len(ARCHIVE) :]
        return ArchiveSegment(name, stored.side, stored.head, halves, starts)

    def block_key(self, number: int) -> bytes:
        """The store key of a block."""
        return ARCHIVE_BLOCK + self.name + number8(number)

    def blocks_of(self, halves: Halves) -> list[bytes]:
        """The store keys of the blocks that may have keys with these hashes."""
        index = np.searchsorted(self.halves, halves)
        index[index == len(self.halves)] = 0
        index = index[self.halves[index] == halves]
        numbers = np.unique(np.searchsorted(self.starts, index, "right") - 1)
        return [self.block_key(number) for number in numbers.tolist()]

    def all_blocks(self) -> list[bytes]:
        return [self.block_key(number) for number in range(len(self.starts))]


class Archive:
    """The archive of one shard. ``store`` is that of the shard; changes go into the overlay of a
    bundle, which its reads see."""

    def __init__(self, shard: str, store: StateStore) -> None:
        self._prefix = pack(shard)
        self._segments = [
            ArchiveSegment.of(store_key, data)
            for store_key, data in store.scan(ARCHIVE + self._prefix)
        ]

    def __bool__(self) -> bool:
        return bool(self._segments)

    def names(self) -> set[bytes]:
        """The names of its segments, as the store should have them. For tests."""
        return {segment.name for segment in self._segments}

    def add(self, groups: Iterable[pl.DataFrame], overlay: Overlay) -> None:
        """Keep records that were in memory."""
        for side, frame in _by_side(list(groups)):
            number = number_from8(self._segments[-1].name[-8:]) + 1 if self._segments else 0
            segment, blocks = _divided(self._prefix + number8(number), side, frame)
            for store_key, data in blocks:
                overlay.put(store_key, data)
            overlay.put(*segment.entry)
            self._segments.append(segment)

    def of_keys(self, keys: Sequence[pl.Series], side: int, view: StoreView) -> list[pl.DataFrame]:
        """The records of one input with these keys."""
        halves, blocks = _halves_of(keys), dict[bytes, list[bytes]]()
        for segment in self._segments if len(halves) else ():
            if segment.side == side:
                blocks.setdefault(segment.head, []).extend(segment.blocks_of(halves))
        if not blocks:
            return []
        requested = all_keys([each.to_frame(KEY) for each in keys]).unique()
        found = []
        for head, of_head in blocks.items():
            frames = [_with_keys(frame, requested) for frame in _read(head, of_head, view)]
            if own := [frame for frame in frames if frame.height]:
                # A copy: texts of a frame are views, which would hold all of their blocks.
                compact = frame_from(frame_bytes(pl.concat(own)))
                found.append(_whole(side, compact))
        return found

    def taken_out(self, keys: Sequence[pl.Series], overlay: Overlay) -> list[pl.DataFrame]:
        """Remove all records with these keys, and return them."""
        halves, found = _halves_of(keys), list[pl.DataFrame]()
        for segment in self._segments:
            for store_key in segment.blocks_of(halves):
                for frame in _read(segment.head, [store_key], overlay):
                    mask = is_among(frame[KEY], keys)
                    if mask.any():
                        found.append(_whole(segment.side, frame.filter(pl.Series(mask))))
                        _rewrite(segment, store_key, frame.filter(pl.Series(~mask)), overlay)
        return found

    def all_records(self, view: StoreView) -> list[pl.DataFrame]:
        """All records in the archive. For tests."""
        return [
            _whole(segment.side, frame)
            for segment in self._segments
            for frame in _read(segment.head, segment.all_blocks(), view)
        ]


def validate_archive(archive: Archive, state: StoreView) -> None:
    """Raise InvariantError unless ``state`` has the segments of this archive, and no others. For
    tests."""
    stored = {store_key[len(ARCHIVE) :] for store_key, _ in state.scan(ARCHIVE)}
    invariant(stored == archive.names(), f"an archive has {archive.names()}, stored are {stored}")


def archives_within(
    shard: str, store: StateStore, within: KeyRange, first: int
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of an archive for another shard, without the keys of other ranges. Its segments
    are numbered from ``first``."""
    number = first
    for store_key, data in store.scan(ARCHIVE):
        segment = ArchiveSegment.of(store_key, data)
        parts, starts, count = [segment.halves[:0]], list[int](), 0
        name = pack(shard) + number8(number)
        ends = [*segment.starts[1:].tolist(), len(segment.halves)]
        for block, (start, end) in enumerate(zip(segment.starts.tolist(), ends, strict=True)):
            halves = segment.halves[start:end]
            message = _within(segment, block, halves, store, within)
            if message is not None:
                yield ARCHIVE_BLOCK + name + number8(len(starts)), message
                starts.append(count)
                parts.append(halves)
                count += len(halves)
        if starts:
            own = np.concatenate(parts), np.array(starts, np.uint32)
            yield ArchiveSegment(name, segment.side, segment.head, *own).entry
            number += 1


def _within(
    segment: ArchiveSegment, block: int, halves: Halves, store: StateStore, within: KeyRange
) -> bytes | None:
    """A block without the keys of other ranges; None where that leaves nothing."""
    first, behind = int(halves[0]) << 32, (int(halves[-1]) + 1) << 32
    if behind <= within.lo or first >= within.hi:
        return None
    store_key = segment.block_key(block)
    if within.lo <= first and behind <= within.hi:
        return store.get(store_key)
    for frame in _read(segment.head, [store_key], store):
        mask = [key_hash(key) in within for key in key_list(frame[KEY])]
        own = frame.filter(pl.Series(mask, dtype=pl.Boolean))
        return _message(segment.head, own) if own.height else None
    return None


def _with_keys(frame: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    """The records with some keys, each of which is there once."""
    if frame.schema[KEY] == keys.dtype:
        return frame.join(keys.to_frame(KEY), on=KEY, how="semi")
    return frame.filter(pl.Series(is_among(frame[KEY], [keys])))


def _read(head: bytes, blocks: Sequence[bytes], view: StoreView) -> Iterator[pl.DataFrame]:
    for start in range(0, len(blocks), _AT_ONCE):
        found = view.get_many(blocks[start : start + _AT_ONCE])
        messages = [each for each in found if each is not None]
        if messages:
            yield frame_from(b"".join([head, *messages, _END]))


def _rewrite(
    segment: ArchiveSegment, store_key: bytes, rest: pl.DataFrame, overlay: Overlay
) -> None:
    if rest.height:
        overlay.put(store_key, _message(segment.head, rest))
    else:
        overlay.delete(store_key)


def _message(head: bytes, frame: pl.DataFrame) -> bytes:
    """A frame as one message of a stream that begins with ``head``."""
    stream = frame_bytes(frame.rechunk())
    # Behind another head, a block would be read as other columns.
    invariant(stream.startswith(head), "a block has other columns than its archive segment")
    return stream[len(head) : -len(_END)]


def _head_of(frame: pl.DataFrame) -> bytes:
    """The beginning of each stream of such frames: the message that has their schema."""
    stream = frame_bytes(frame.clear())
    return stream[: 8 + int.from_bytes(stream[_LENGTH], "little")]


def _by_side(groups: Sequence[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Records of one input and form each, with their own columns."""
    alike: dict[tuple[int, str], list[pl.DataFrame]] = {}
    for frame in groups:
        for side, name in enumerate(SIDES):
            value = VALUE if VALUE in frame.schema else name
            if value not in frame.schema:
                continue
            others = [each for each in (*SIDES, VALUE) if each != value and each in frame.schema]
            own = frame.filter(pl.col(INPUT) == side).drop(others)
            # Records with bounds would come back without them.
            invariant(
                all((own[name] == stated).all() for name, stated in _ALIKE.items()),
                "records with bounds do not belong in an archive",
            )
            own = own.drop(INPUT, *_ALIKE)
            if own.height:
                alike.setdefault((side, str(own.schema)), []).append(own)
    for (side, _), frames in alike.items():
        yield side, pl.concat(frames)


def _whole(side: int, frame: pl.DataFrame) -> pl.DataFrame:
    """Records of blocks as they were kept in memory."""
    alike = [pl.lit(stated, pl.Int64).alias(name) for name, stated in _ALIKE.items()]
    return frame.with_columns(pl.lit(side, pl.Int8).alias(INPUT), *alike)


def _divided(
    name: bytes, side: int, frame: pl.DataFrame
) -> tuple[ArchiveSegment, list[tuple[bytes, bytes]]]:
    """Records of one input and form as a segment, and its blocks."""
    keys = frame[KEY].unique()
    halves = pl.DataFrame({KEY: keys, _HALF: pl.Series(_hashed(keys))})
    ordered = frame.join(halves, on=KEY).sort(_HALF)
    numbers, firsts = np.unique(ordered[_HALF].to_numpy(), return_index=True)
    ordered = ordered.drop(_HALF)
    rows = max(1, int(_BLOCK_BYTES * ordered.height / max(1, ordered.estimated_size())))
    starts = np.unique(np.searchsorted(firsts, np.arange(0, ordered.height, rows)))
    starts = starts[starts < len(firsts)]
    segment = ArchiveSegment(name, side, _head_of(ordered), numbers, starts.astype(np.uint32))
    bounds = [*firsts[starts].tolist(), ordered.height]
    return segment, [
        (segment.block_key(number), _message(segment.head, ordered[start:end]))
        for number, (start, end) in enumerate(itertools.pairwise(bounds))
    ]


def _halves_of(keys: Sequence[pl.Series]) -> Halves:
    return np.unique(np.concatenate([_hashed(each.unique()) for each in keys] or [_NONE]))


def _hashed(keys: pl.Series) -> Halves:
    """The upper halves of the hashes of keys."""
    hashes: Any = np.fromiter(key_hashes(key_list(keys)), np.uint64, len(keys))
    halves: Halves = (hashes >> np.uint64(32)).astype(np.uint32)
    return halves


_NONE = np.array([], np.uint32)
