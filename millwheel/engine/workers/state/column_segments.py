"""Columnar segments in the store of a shard: the state of an aggregation or a join in columns, an
entry for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from millwheel.adapters.ports import StateStore, StoreView
from millwheel.core.columns.batch import frame_bytes, frame_from, key_list
from millwheel.core.columns.few_groups import (
    FewGroups,
    Groups,
    frame_of,
    restored_rows,
    stored_rows,
)
from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.columns.segments import ColumnarSegments, GroupsKind, Types
from millwheel.core.columns.state.sessions import without_replaced
from millwheel.core.columns.state.steps import entered
from millwheel.core.formats.store_layout import COLUMNS, number8, number_from8, pack
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.skew import hash_by_slot
from millwheel.core.windows.lateness import final_until, still_open
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import invariant

_FIRED = (GroupsKind.KEPT, GroupsKind.ORDERED)
"""The kinds of groups that stay when they have fired."""


class _Stored(msgspec.Struct, array_like=True):
    level: int
    frame: bytes
    slots: int = 0
    kind: int = 0
    types: Types = ()
    fired: int = MIN_TIME
    lateness_us: int = 0
    rows: tuple[Any, ...] = ()
    """(types of the columns, groups) of a segment that has no ``frame``."""


_decode = msgspec.msgpack.Decoder(_Stored).decode


@dataclass(frozen=True, slots=True)
class ColumnShard:
    """A shard: its name, its store, and the watermark (µs) up to which its windows have been
    closed."""

    name: str
    store: StateStore
    closed: int


def restore_segments(held: ColumnarSegments, shard: ColumnShard) -> None:
    """Restore the segments that the store of a shard has."""
    for number, segment in numbered_segments(shard):
        restore_segment(held, number, segment, shard.closed)


def restore_segment(held: ColumnarSegments, number: int, segment: Segment, closed: int) -> None:
    """Restore one of them."""
    groups = segment.groups
    # windows that were final under another pipeline are not found again
    if held.lateness_us > segment.lateness_us:
        groups = groups.filter(still_open(pl.col(END), final_until(closed, segment.lateness_us)))
    held.restore(number, segment.level, groups, closed, segment.fired)


def numbered_segments(shard: ColumnShard) -> Iterator[tuple[int, Segment]]:
    """The columnar segments of a shard, in order of their numbers."""
    prefix = COLUMNS + pack(shard.name)
    for store_key, data in shard.store.scan(prefix):
        yield number_from8(store_key[len(prefix) :]), _segment_from(data)


def write_segments(held: ColumnarSegments, shard: str, overlay: Overlay, slots: int = 0) -> None:
    """Write the changes of a bundle to the store. ``slots``: as in :class:`Segment`."""
    changes = held.take_changes()
    for number in changes.gone:
        overlay.delete(COLUMNS + pack(shard) + number8(number))
    for segment in changes.new:
        stored = Segment(
            segment.level,
            segment.held,
            held.kind,
            slots,
            held.types,
            segment.fired,
            held.lateness_us,
        )
        overlay.put(*segment_entry(shard, segment.number, stored))


def validate_segments(every: Sequence[ColumnarSegments], shard: str, state: StoreView) -> None:
    """Raise InvariantError unless ``state`` has the segments of all of these, and no others. For
    tests."""
    prefix = COLUMNS + pack(shard)
    stored = {number_from8(store_key[len(prefix) :]) for store_key, _ in state.scan(prefix)}
    numbers: set[int] = set().union(*(held.numbers() for held in every))
    invariant(
        stored == numbers,
        f"{shard} has the segments {sorted(numbers)}, stored are {sorted(stored)}",
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """A columnar segment as it is stored. ``slots``: above 0 its keys are those of this number of
    instances with fixed positions, and hashed by these. ``types`` are the inferred ones of
    undeclared fields. Windows that stay for ``lateness_us`` after they have fired have fired up to
    ``fired``, or to where the shard has closed windows, if that is later."""

    level: int
    held: Groups
    kind: GroupsKind = GroupsKind.WINDOWS
    slots: int = 0
    types: Types = ()
    fired: int = MIN_TIME
    lateness_us: int = 0

    @property
    def groups(self) -> pl.DataFrame:
        """Its groups as a frame."""
        return frame_of(self.held)


def segments_within(store: StateStore, within: KeyRange, closed: int) -> list[Segment]:
    """The segments of a store, without keys of other ranges and without windows that have closed.
    They mean the same for a shard in which others have closed fewer windows."""
    segments = []
    for segment in _segments(store):
        hashed = hash_by_slot(segment.slots) if segment.slots else key_hash
        mask = [hashed(key) in within for key in key_list(segment.groups[KEY])]
        segments.append(
            replace(segment, held=segment.groups.filter(pl.Series(mask, dtype=pl.Boolean)))
        )
    open_segments = [
        replace(
            segment,
            held=entered(groups, closed) if segment.kind is GroupsKind.STEPS else groups,
            fired=max(segment.fired, closed) if segment.kind in _FIRED else segment.fired,
        )
        for segment, groups in zip(segments, _open_groups(segments, closed), strict=True)
    ]
    return [segment for segment in open_segments if segment.groups.height]


def _open_groups(segments: Sequence[Segment], closed: int) -> list[pl.DataFrame]:
    """The groups that still take records."""
    frames = [
        segment.groups
        if segment.kind in (GroupsKind.LASTING, GroupsKind.ORDERED)
        else segment.groups.filter(
            still_open(pl.col(END), final_until(closed, segment.lateness_us))
        )
        for segment in segments
    ]
    return (
        without_replaced(frames)
        if any(segment.kind is GroupsKind.SESSIONS for segment in segments)
        else frames
    )


def segment_entry(shard: str, number: int, segment: Segment) -> tuple[bytes, bytes]:
    """A columnar segment as an entry of the store of ``shard``. Packed it takes a quarter of the
    disk's time, which is worth more than the millisecond per megabyte that packing takes."""
    held = segment.held
    frame, rows = (
        (b"", stored_rows(held)) if isinstance(held, FewGroups) else (frame_bytes(held, "lz4"), ())
    )
    stored = _Stored(
        segment.level,
        frame,
        segment.slots,
        segment.kind,
        segment.types,
        segment.fired,
        segment.lateness_us,
        rows,
    )
    return COLUMNS + pack(shard) + number8(number), pack(stored)


def open_groups(store: StateStore | StoreView, closed: int) -> dict[Types, list[pl.DataFrame]]:
    """The groups in a store of which windows up to ``closed`` have fired, by the types that were
    inferred."""
    by_types: dict[Types, list[Segment]] = {}
    for segment in _segments(store):
        by_types.setdefault(segment.types, []).append(segment)
    return {types: _open_groups(segments, closed) for types, segments in by_types.items()}


def segments_of(store: StateStore | StoreView) -> Iterator[pl.DataFrame]:
    """The groups of each segment in a store."""
    return (segment.groups for segment in _segments(store))


def _segments(store: StateStore | StoreView) -> Iterator[Segment]:
    return (_segment_from(data) for _, data in store.scan(COLUMNS))


def _segment_from(data: bytes) -> Segment:
    stored = _decode(data)
    kind, frame = (
        GroupsKind(stored.kind),
        restored_rows(stored.rows) if stored.rows else frame_from(stored.frame),
    )
    return Segment(
        stored.level, frame, kind, stored.slots, stored.types, stored.fired, stored.lateness_us
    )
