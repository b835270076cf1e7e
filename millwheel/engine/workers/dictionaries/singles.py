"""Values of a dictionary that are entries of the store, each by itself: those of roots from before
there were runs, and those beyond the limit in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.store_layout import STATE, key_prefix, pack, unpack
from millwheel.core.model.keys import key_hash
from millwheel.engine.workers.state.overlay import Overlay

_VALUE, _NEXT = b"i", b"n"
_CACHED_VALUES = 200_000  # of a shard: some 30 MB; a look into the store takes a few microseconds


class Singles:
    """The numbers of single values, and how far partitions have counted, where that is stored."""

    def __init__(self, store: StateStore, overlay: Overlay, limit: int = _CACHED_VALUES) -> None:
        self._overlay = overlay
        self._limit = limit
        self._memo: dict[Any, int] = {}
        self._prefixes: dict[int, bytes] = {}
        self.there = store.first(STATE, STATE) is not None
        """Whether there may be any."""

    def of(self, values: Mapping[Any, int]) -> dict[Any, int]:
        """The numbers of those values, given with their partitions, that have one."""
        if not self.there:
            return {}
        memo = self._memo
        if len(memo) > self._limit:
            for value in list(memo)[: len(memo) - self._limit // 2]:
                del memo[value]
        missing = [value for value in values if value not in memo]
        stored = self._overlay.get_many(
            [self._value_key(values[value], value) for value in missing]
        )
        for value, data in zip(missing, stored, strict=True):
            if data is not None:
                number: Any = unpack(data)
                memo[value] = number
        return {value: memo[value] for value in values if value in memo}

    def put(self, partition: int, value: Any, number: int) -> None:
        """Store the number of a value."""
        self.there = True
        self._memo[value] = number
        self._overlay.put(self._value_key(partition, value), pack(number))

    def delete(self, partition: int, value: Any) -> None:
        """Delete a value that has moved into a run."""
        self._memo.pop(value, None)
        self._overlay.delete(self._value_key(partition, value))

    def counted(self, partitions: list[int]) -> list[int]:
        """How far partitions have counted; 0 where that is not stored."""
        stored = self._overlay.get_many([self._prefix(at) + _NEXT for at in partitions])
        counted: list[Any] = [0 if data is None else unpack(data) for data in stored]
        return counted

    def put_counted(self, partition: int, number: int) -> None:
        """Store how far a partition has counted."""
        self._overlay.put(self._prefix(partition) + _NEXT, pack(number))

    def _value_key(self, partition: int, value: Any) -> bytes:
        return self._prefix(partition) + _VALUE + pack(value)

    def _prefix(self, at: int) -> bytes:
        prefix = self._prefixes.get(at)
        if prefix is None:
            prefix = self._prefixes[at] = key_prefix(STATE, at, key_hash(at))
        return prefix
