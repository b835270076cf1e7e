"""Answers of a lookup that are kept for a while: bounded in number and in time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

UNKNOWN = object()
"""What :meth:`AnswerCache.get` returns for a key that must be asked for."""


class AnswerCache:
    """Those of one computation in one worker: its shards share it, on the thread of the loop. ``size`` entries at most;
    the ones that were used longest ago go first. An entry is used for ``ttl_us`` after its answer came. ``absent``:
    that the target knows nothing of a key is an answer, too."""

    def __init__(self, size: int, ttl_us: int, absent: bool) -> None:
        self._size = size
        self._ttl_us = ttl_us
        self._absent = absent
        self._entries: OrderedDict[bytes, tuple[int, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: bytes, now_us: int) -> Any:
        """The answer for a key, by its bytes."""
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
