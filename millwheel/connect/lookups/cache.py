"""A cache of a lookup's answers, bounded in number and in time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

UNKNOWN = object()
"""Returned by :meth:`AnswerCache.get` for a key that is not in the cache."""


class AnswerCache:
    """The answers for one computation in one worker. Its shards share the cache, on the thread of
    the loop. It holds at most ``size`` entries and drops the least recently used ones first. An
    entry is valid for ``ttl_us`` after its answer came. ``absent``: also cache that the target has
    no value for a key."""

    def __init__(self, size: int, ttl_us: int, absent: bool) -> None:
        self._size = size
        self._ttl_us = ttl_us
        self._absent = absent
        self._entries: OrderedDict[bytes, tuple[int, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: bytes, now_us: int) -> Any:
        """The cached answer for a key, given as bytes, or :data:`UNKNOWN`."""
        entry = self._entries.get(name)
        if entry is None:
            return UNKNOWN
        if now_us >= entry[0]:
            del self._entries[name]
            return UNKNOWN
        self._entries.move_to_end(name)
        return entry[1]

    def put(self, name: bytes, answer: Any, now_us: int) -> None:
        """Keep an answer that has just come."""
        if not self._size or (answer is None and not self._absent):
            return
        self._entries[name] = (now_us + self._ttl_us, answer)
        self._entries.move_to_end(name)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
