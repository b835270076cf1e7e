"""Keys of slices that become idle: the entry of each key, and how its slices are found and dropped.

A key whose records stop for its ``ttl`` is forgotten. Event time decides, by the key's own records
and the watermark, never the moment at which a store is cleared: a record at or after the end of
that time finds nothing from before, whether it is still in the store or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from millwheel.core.formats.store_layout import (
    CLEARED,
    SLICE_IDLE,
    SLICE_KEY,
    number8,
    number_from8,
    slice_prefix,
)
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.slices.levels import SliceLevel
from millwheel.engine.queries.slices import (
    SliceAnswers,
    StoredKey,
    decode_key,
    encode_slice,
    is_idle,
    since_idle,
)
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import invariant

_STEPS = 8
"""Idle keys are looked for this many times in a time to live."""
_AT_ONCE = 2_000  # keys that one bundle looks at: each may have hundreds of slices


@dataclass(slots=True)
class Admitted:
    """The outcome for some records of a key: the indexes of those that count, the indexes of those
    that are too old, and the dropped store keys."""

    indexes: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    gone: list[bytes] = field(default_factory=list)


class SliceKeys:
    """The entries of the keys of one shard. Changes go into the overlay."""

    def __init__(self, answers: SliceAnswers, overlay: Overlay, ttl_us: int) -> None:
        self._answers = answers
        self._overlay = overlay
        self._ttl_us = ttl_us
        self._step_us = max(ttl_us // _STEPS, 1)
        self._next_us = MIN_TIME

    @staticmethod
    def of(answers: SliceAnswers, overlay: Overlay) -> SliceKeys:
        """The keys for a computation that has a time to live."""
        ttl_us = answers.spec.ttl_us
        invariant(ttl_us is not None, "its keys do not go idle")
        assert ttl_us is not None
        return SliceKeys(answers, overlay, ttl_us)

    def admit(self, key: Key, times_us: Sequence[int], watermark_us: int) -> Admitted:
        """The records that count, of those with ``times_us``, in this order. Writes the key's new
        entry."""
        stored_key = self._answers.stored_key(key)
        stored = self._overlay.get(SLICE_KEY + stored_key)
        entry = before = None if stored is None else decode_key(stored)
        admitted = Admitted()
        if entry is not None and is_idle(entry.newest_us, watermark_us, self._ttl_us):
            admitted.gone += self._drop(stored_key, entry)
            entry = None
        for index, at_us in enumerate(times_us):
            since_us = self._since(at_us, watermark_us) if entry is None else entry.since_us
            if at_us < since_us:
                admitted.late.append(index)
                continue
            if entry is not None and at_us >= entry.newest_us + self._ttl_us:
                admitted.gone += self._drop(stored_key, entry)
                admitted.indexes.clear()
                entry, since_us = None, self._since(at_us, watermark_us)
            entry = StoredKey(at_us if entry is None else max(entry.newest_us, at_us), since_us)
            admitted.indexes.append(index)
        if entry is not None:
            self._write(stored_key, before, entry)
        return admitted

    def due_at(self) -> int:
        """Keys may have gone idle once the watermark has passed this."""
        return self._next_us

    def clear(self, watermark_us: int) -> list[bytes]:
        """Drop the slices of some keys that the watermark has made idle; others wait for the next
        bundle. Returns the store keys that were dropped."""
        if watermark_us == MAX_TIME or watermark_us < self._next_us:
            return []
        some = list(islice(self._waiting(watermark_us), _AT_ONCE))
        if len(some) < _AT_ONCE:
            self._next_us = min(watermark_us + self._step_us, MAX_TIME)
        return [gone for idle_key in some for gone in self._clear_one(idle_key, watermark_us)]

    def _clear_one(self, idle_key: bytes, watermark_us: int) -> list[bytes]:
        stored_key = idle_key[len(SLICE_IDLE) + 8 :]
        stored = self._overlay.get(SLICE_KEY + stored_key)
        self._overlay.delete(idle_key)
        if stored is None:
            return []
        self._overlay.delete(SLICE_KEY + stored_key)
        self._overlay.put(CLEARED, number8(watermark_us))
        return self._drop(stored_key, decode_key(stored))

    @property
    def _finest(self) -> SliceLevel:
        return self._answers.levels[0]

    def _since(self, first_us: int, watermark_us: int) -> int:
        """Since when everything is kept of a key that begins with this record. The record decides,
        unless it is late: where the watermark stands when it comes is chance."""
        by_watermark = since_idle(
            self._finest, watermark_us, self._overlay.get(CLEARED), self._ttl_us
        )
        return max(by_watermark, since_idle(self._finest, first_us, None, self._ttl_us))

    def _waiting(self, watermark_us: int) -> Iterator[bytes]:
        """The keys of the steps that lie whole a time to live behind the watermark: all of them are
        idle."""
        for idle_key, _ in self._overlay.scan(SLICE_IDLE):
            if (
                number_from8(idle_key[len(SLICE_IDLE) :][:8]) + self._step_us + self._ttl_us
                > watermark_us
            ):
                return
            yield idle_key

    def _write(self, stored_key: bytes, before: StoredKey | None, entry: StoredKey) -> None:
        self._overlay.put(SLICE_KEY + stored_key, encode_slice(entry))
        idle_key = self._idle_key(stored_key, entry)
        if before is not None:
            old = self._idle_key(stored_key, before)
            if old == idle_key:
                return
            self._overlay.delete(old)
        self._overlay.put(idle_key, b"")

    def _idle_key(self, stored_key: bytes, entry: StoredKey) -> bytes:
        return SLICE_IDLE + number8(entry.newest_us - entry.newest_us % self._step_us) + stored_key

    def _drop(self, stored_key: bytes, entry: StoredKey) -> list[bytes]:
        """Delete every slice of a key; returns their store keys. The search goes from the coarsest
        level down, and below those that are there: a key has few."""
        levels = self._answers.levels
        store_keys: list[bytes] = []
        oldest_us = max(
            entry.since_us, entry.newest_us - self._answers.spec.keep_us - levels[-1].size_us
        )
        spans = [(oldest_us, entry.newest_us + 1)]
        for level in reversed(levels):
            spans = self._there(level, stored_key, spans)
            store_keys += [slice_prefix(level.number, start) + stored_key for start, _ in spans]
        for store_key in store_keys:
            self._overlay.delete(store_key)
        return store_keys

    def _there(
        self, level: SliceLevel, stored_key: bytes, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        slices = dict.fromkeys(each for start, end in spans for each in _slices(level, start, end))
        store_keys = [slice_prefix(level.number, start) + stored_key for start, _ in slices]
        data = self._overlay.get_many(store_keys)
        return [each for each, stored in zip(slices, data, strict=True) if stored is not None]


def _slices(level: SliceLevel, start_us: int, end_us: int) -> Iterator[tuple[int, int]]:
    while start_us < end_us:
        start, end = level.bounds(start_us)
        yield start, end
        start_us = end
