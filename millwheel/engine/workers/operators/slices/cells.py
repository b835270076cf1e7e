"""The accumulators of slices: a cache over the store, and the records that are added to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.formats.store_layout import SLICE_PREFIX_BYTES, slice_prefix
from millwheel.core.model.keys import Key
from millwheel.core.model.limits import over
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.queries.slices import SliceAnswers, StoredSlice, decode_slice, encode_slice
from millwheel.engine.workers.state.overlay import Overlay


class ReadyRecord:
    """A record whose arguments have been read, with the finest slice that it lies in."""

    __slots__ = ("back", "key", "prepared", "start_end", "stream", "timestamp", "value")

    def __init__(
        self,
        key: Key,
        value: Any,
        timestamp: int,
        stream: str,
        prepared: Any,
        start_end: tuple[int, int],
        back: bool,
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.stream = stream
        self.prepared = prepared
        self.start_end = start_end
        self.back = back


class SliceCells:
    """The accumulators of slices: a cache over the store, written through with each change."""

    def __init__(self, overlay: Overlay, answers: SliceAnswers, limit: int, most: int) -> None:
        self._overlay = overlay
        self._answers = answers
        self._limit = limit
        self._most = most
        self._cells: dict[bytes, StoredSlice] = {}

    def add(self, key: Key, records: Sequence[ReadyRecord]) -> None:
        """Add records of one finest slice to it and to the slices above. Changes nothing if it
        raises."""
        at_us = records[0].start_end[0]
        stored_key = self._answers.stored_key(key)
        cell_keys = [
            slice_prefix(level.number, level.bounds(at_us)[0]) + stored_key
            for level in self._answers.levels
        ]
        newest_us = max(record.timestamp for record in records)
        changed = []
        try:
            for cell_key, cell in zip(cell_keys, self._load(cell_keys), strict=True):
                acc = self._added(cell.acc, records)
                cell = StoredSlice(max(cell.newest_us, newest_us), acc)
                changed.append((cell_key, cell, self._encoded(cell)))
        except BaseException:
            # An accumulator may be half changed: the store has it as it was before.
            self.forget(cell_keys)
            raise
        self._write(changed)

    def merge(self, parts: Iterable[tuple[bytes, StoredSlice]]) -> bool:
        """Merge accumulators into those of their store keys, each key once. Changes nothing if it
        raises. Returns whether there was one."""
        by_key = dict(parts)
        changed = []
        try:
            self._fetch(by_key)
            for cell_key, part in by_key.items():
                cell = self._cells.get(cell_key)
                if cell is not None:
                    acc = self._answers.aggregation.merge(cell.acc, part.acc)
                    part = StoredSlice(max(cell.newest_us, part.newest_us), acc)
                changed.append((cell_key, part, self._encoded(part)))
        except BaseException:
            # Accumulators may be changed: the store has them as they were before.
            self.forget(by_key)
            raise
        self._write(changed)
        return bool(changed)

    def _encoded(self, cell: StoredSlice) -> bytes:
        data = encode_slice(cell)
        if len(data) > self._most:
            raise ValueError(over("state", "a value", len(data), self._most))
        return data

    def _write(self, changed: Iterable[tuple[bytes, StoredSlice, bytes]]) -> None:
        merged = self._answers.merged
        for cell_key, cell, data in changed:
            self._cells[cell_key] = cell
            self._overlay.put(cell_key, data)
            if merged:
                merged.changed(cell_key[SLICE_PREFIX_BYTES:])

    def _added(self, acc: Any, records: Sequence[ReadyRecord]) -> Any:
        aggregation: Aggregation = self._answers.aggregation
        if not any(record.back for record in records):
            return aggregation.add_many(
                acc,
                [record.prepared for record in records],
                [record.timestamp for record in records],
            )
        for record in records:
            if record.back:
                acc = aggregation.subtract(acc, record.prepared, record.timestamp)
            else:
                acc = aggregation.add_many(acc, [record.prepared], [record.timestamp])
        return acc

    def _load(self, cell_keys: Sequence[bytes]) -> list[StoredSlice]:
        self._fetch(cell_keys)
        for cell_key in cell_keys:
            if cell_key not in self._cells:
                self._cells[cell_key] = StoredSlice(MIN_TIME, self._answers.aggregation.create())
        return [self._cells[cell_key] for cell_key in cell_keys]

    def _fetch(self, cell_keys: Iterable[bytes]) -> None:
        """Bring those of the cells that there are into the cache."""
        missing = [cell_key for cell_key in cell_keys if cell_key not in self._cells]
        if missing:
            for cell_key, data in zip(missing, self._overlay.get_many(missing), strict=True):
                if data is not None:
                    self._cells[cell_key] = decode_slice(data)

    def forget(self, cell_keys: Iterable[bytes]) -> None:
        for cell_key in cell_keys:
            self._cells.pop(cell_key, None)

    def trim(self) -> None:
        """Keep the cache within its limit."""
        if len(self._cells) > self._limit:
            for cell_key in list(self._cells)[: len(self._cells) - self._limit // 2]:
                del self._cells[cell_key]
