"""Records that wait for the watermark, in the store of a shard: an entry for many of them.

The records that a bundle keeps are sorted by time and tag, and divided into segments of a bounded
size. They come due nearly in that order, so an entry beside a segment has the position up to which
they have come. A timer in memory waits for each record; the store has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import NamedTuple

import msgspec

from millwheel.adapters.ports import StateStore, StoreView
from millwheel.core.formats.store_layout import WAITING, number8, number_from8, pack
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import Key, key_bytes, key_from_bytes, key_hash
from millwheel.core.model.ranges import KeyRange
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import invariant

ORDER_TAG = "\0r"
"""The beginning of the tags of kept records: before every tag of a callback, and before those of
times to live."""
_MOST = 1_000
"""The most records in a segment. One is read whole when its first record comes due, so of each
bundle that lies across the watermark the values of at most this number are in memory."""
_GONE = b"c"
_NUMBER_DIGITS = 20  # of the tag of a record that has a number


class WaitingRecord(NamedTuple):
    """A record that comes due at ``at`` (µs). ``value`` is encoded."""

    key: Key
    tag: str
    at: int
    stream: str
    value: msgspec.Raw


class _Segment(msgspec.Struct, array_like=True):
    """A segment as columns of equal length; a tag is a head, a colon, and a number or another
    name."""

    keys: list[bytes]
    times: list[int]
    heads: list[str]
    head_of: list[int]
    names: list[int | str]
    streams: list[str]
    stream_of: list[int]
    values: list[msgspec.Raw]

    def tag(self, index: int) -> str:
        name = self.names[index]
        text = f"{name:0{_NUMBER_DIGITS}d}" if isinstance(name, int) else name
        return f"{self.heads[self.head_of[index]]}:{text}"

    def record(self, index: int) -> WaitingRecord:
        return WaitingRecord(
            key_from_bytes(self.keys[index]),
            self.tag(index),
            self.times[index],
            self.streams[self.stream_of[index]],
            self.values[index],
        )


class _Gone(msgspec.Struct, array_like=True):
    """The records of a segment that have come: a number of them from the beginning, and others by
    their position."""

    first: int = 0
    others: list[int] = []


_BY_TIME = attrgetter("at", "tag")
_encode = msgspec.msgpack.Encoder().encode
_decode = checked(msgspec.msgpack.Decoder(_Segment).decode, "records that wait for the watermark")
_decode_gone = checked(msgspec.msgpack.Decoder(_Gone).decode, "which of them have come")


@dataclass(slots=True)
class _Open:
    """A segment in the store. ``segment`` is there while its records come due."""

    size: int
    first: int = 0
    others: set[int] = field(default_factory=set)
    segment: _Segment | None = None

    def go(self, index: int) -> None:
        self.others.add(index)
        while self.first in self.others:
            self.others.remove(self.first)
            self.first += 1

    @property
    def left(self) -> int:
        return self.size - self.first - len(self.others)


class WaitingRecords:
    """The records of one shard that wait, by their keys and tags. What a bundle changes is in the
    store from :meth:`write` on."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._indexes: dict[tuple[Key, str], tuple[int, int]] | None = None
        self._open: dict[int, _Open] = {}
        self._next = 0
        self._fresh: dict[tuple[Key, str], WaitingRecord] = {}
        self._taken: list[tuple[tuple[Key, str], tuple[int, int]]] = []

    def keep(self, record: WaitingRecord) -> None:
        """Put a record aside."""
        self._fresh[record.key, record.tag] = record

    def take(self, key: Key, tag: str) -> tuple[str, msgspec.Raw] | None:
        """Stream and value of the record that came due, which is kept no longer; None if it is not
        among these."""
        fresh = self._fresh.pop((key, tag), None)
        if fresh is not None:
            return fresh.stream, fresh.value
        position = self._read().pop((key, tag), None)
        if position is None:
            return None
        self._taken.append(((key, tag), position))
        number, index = position
        held = self._open[number]
        if held.segment is None:
            data = self._overlay.get(WAITING + number8(number))
            invariant(data is not None, f"the record of timer {tag!r} of key {key!r} is gone")
            assert data is not None
            held.segment = _decode(data)
        segment = held.segment
        return segment.streams[segment.stream_of[index]], segment.values[index]

    def forget(self) -> None:
        """Undo the changes of the bundle."""
        self._fresh.clear()
        if self._indexes is not None:
            self._indexes.update(self._taken)
        self._taken.clear()

    def write(self) -> None:
        """Write the changes of the bundle to the store."""
        changed = set()
        for _, (number, index) in self._taken:
            self._open[number].go(index)
            changed.add(number)
        self._taken.clear()
        for number in sorted(changed):
            self._write_gone(number)
        if self._fresh:
            self._write_fresh()

    def _write_gone(self, number: int) -> None:
        held, store_key = self._open[number], WAITING + number8(number)
        # More have come than there were: one came twice, and so did what its callback made of it.
        invariant(held.left >= 0, f"{-held.left} records of segment {number} came twice")
        if held.left:
            gone = _Gone(held.first, sorted(held.others))
            self._overlay.put(store_key + _GONE, _encode(gone))
            return
        del self._open[number]
        self._overlay.delete(store_key)
        self._overlay.delete(store_key + _GONE)

    def _write_fresh(self) -> None:
        indexes = self._read()
        # The store is read in this order again, and of timers with one time and tag the first one
        # set fires first.
        rows = sorted(self._fresh.values(), key=_BY_TIME)
        self._fresh.clear()
        for start in range(0, len(rows), _MOST):
            some, number = rows[start : start + _MOST], self._next
            self._next += 1
            self._open[number] = _Open(len(some))
            self._overlay.put(*_entry(number, some))
            indexes.update(((row.key, row.tag), (number, index)) for index, row in enumerate(some))

    def _read(self) -> dict[tuple[Key, str], tuple[int, int]]:
        if self._indexes is None:
            self._indexes = {}
            for number, segment, gone in _segments(self._overlay):
                self._next = number + 1
                held = _Open(len(segment.keys), gone.first, set(gone.others))
                self._open[number] = held
                for index in _left(held):
                    key = key_from_bytes(segment.keys[index])
                    self._indexes[key, segment.tag(index)] = number, index
        return self._indexes


def waiting_records(store: StateStore | StoreView) -> Iterator[WaitingRecord]:
    """The records in a store that wait, each with its timer."""
    for _, segment, gone in _segments(store):
        held = _Open(len(segment.keys), gone.first, set(gone.others))
        yield from map(segment.record, _left(held))


def waiting_within(
    store: StateStore, within: KeyRange, first: int
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of the records whose keys are in a range, numbered from ``first``."""
    numbers = count(first)
    for _, segment, gone in _segments(store):
        held = _Open(len(segment.keys), gone.first, set(gone.others))
        rows = [row for row in map(segment.record, _left(held)) if key_hash(row.key) in within]
        if rows:
            yield _entry(next(numbers), rows)


def _left(held: _Open) -> Iterator[int]:
    return (index for index in range(held.first, held.size) if index not in held.others)


def _segments(
    store: StateStore | StoreView | Overlay,
) -> Iterator[tuple[int, _Segment, _Gone]]:
    last: tuple[int, _Segment] | None = None
    for store_key, data in store.scan(WAITING):
        if store_key.endswith(_GONE) and len(store_key) > len(WAITING) + 8:
            invariant(last is not None, "records have come of a segment that is not there")
            assert last is not None
            yield *last, _decode_gone(data)
            last = None
            continue
        if last is not None:
            yield *last, _Gone()
        last = number_from8(store_key[len(WAITING) :]), _decode(data)
    if last is not None:
        yield *last, _Gone()


def _entry(number: int, rows: Sequence[WaitingRecord]) -> tuple[bytes, bytes]:
    heads: dict[str, int] = {}
    streams: dict[str, int] = {}
    head_of, names, stream_of = [], [], []
    for row in rows:
        head, _, name = row.tag.rpartition(":")
        head_of.append(heads.setdefault(head, len(heads)))
        numbered = len(name) == _NUMBER_DIGITS and name.isdigit()
        names.append(int(name) if numbered else name)
        stream_of.append(streams.setdefault(row.stream, len(streams)))
    segment = _Segment(
        [key_bytes(row.key) for row in rows],
        [row.at for row in rows],
        list(heads),
        head_of,
        names,
        list(streams),
        stream_of,
        [row.value for row in rows],
    )
    return WAITING + number8(number), pack(segment)
