"""Lookups: the contract of another system that is asked for the value of a key while records are
processed, its kinds, and the cache of answers. docs/lookups.md shows how to use them.

The built-in kinds are rows of ``connect/built_in.py``. Third parties register a factory under the
entry point group ``millwheel.lookups``: ``name = "package.module:factory"``, where
``factory(options, folder) -> Lookup``.

The answer of a lookup depends on when it is asked, so results with answers in them are not a
function of the input alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.errors import MillwheelError

LookupKey = tuple[Any, ...]
"""The values by which a record is looked up, in the order of :attr:`Lookup.by`. None of them is
None."""
_OF_KEYS = (ValueError, TypeError, ArithmeticError, RecursionError)
"""Exceptions of a client for a key that it cannot convert."""


class LookupRefusedError(MillwheelError):
    """The target refuses to answer because of at least one of the keys. The message is the target's
    own."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The target cannot answer for this key, for the given reason. The records become dead
    letters."""

    reason: str


class Lookup(ABC):
    """Only one thread uses a lookup at a time. The driver makes one to call :meth:`check`, and
    every shard has its own. A lookup connects when it is first used, and again after an
    UnavailableError. ``where`` names the target in messages, without secrets. ``by`` are the
    expressions over a record's value, most often fields, that make up the key."""

    where: str = "the target"
    by: tuple[str, ...] = ()

    def check(self) -> None:
        """Called once by the driver before anything starts. Raises SetupError when the target
        cannot be asked."""
        return

    @abstractmethod
    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        """One answer for each key, in their order, with one request if possible: plain data, None
        where the target has no value, :class:`NoAnswer` where it cannot answer. The keys are
        distinct.

        Raises UnavailableError when the target does not respond: the call is repeated until it
        does, and the records wait. Raises :class:`LookupRefusedError` when it is unknown which key
        is to blame: the call is repeated with fewer keys. It must return or raise within seconds,
        because it cannot be interrupted."""

    def close(self) -> None:
        """Release connections. Never called while another method runs."""
        return


def answers_to(lookup: Lookup, keys: Sequence[LookupKey]) -> list[Any]:
    """The answers to all keys, in order. Where the target refuses several keys at once, each half
    is asked separately."""
    try:
        answers = list(lookup.look_up(keys))
    except (LookupRefusedError, *_OF_KEYS) as ex:
        if len(keys) == 1:
            return [NoAnswer(str(ex))]
        half = len(keys) // 2
        return answers_to(lookup, keys[:half]) + answers_to(lookup, keys[half:])
    if len(answers) != len(keys):
        return [NoAnswer(f"{lookup.where} gave {len(answers)} answers to {len(keys)} keys")] * len(
            keys
        )
    return answers


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
