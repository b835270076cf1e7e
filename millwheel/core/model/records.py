"""The data that flows: records, timers, and the batches they travel in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from millwheel.core.model.keys import Key
from millwheel.core.model.limits import CREDIT_BYTES
from millwheel.core.model.times import MAX_TIME

if TYPE_CHECKING:  # `millwheel --help` loads this file, and numpy takes longer than all the rest of it
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class Domain(Enum):
    """The clock a timer obeys."""

    EVENT = "event"
    """The low watermark of the computation's inputs."""
    PROCESSING = "processing"
    """The worker's wall clock."""

    # Timer queues are looked up by it many times per step; the hash of Enum is computed in Python.
    __hash__ = object.__hash__


class Record(msgspec.Struct, Generic[V], gc=False):
    """What ``process_record`` receives: ``key``, ``value``, ``timestamp`` (µs UTC) and the ``stream`` of the record. In
    annotations ``Record[Click]`` gives the type of the value."""

    key: Key
    value: V
    timestamp: int
    stream: str


class Timer:
    """What ``process_timer`` receives: the ``tag`` and time ``at`` (µs) it was set for, and its ``domain``."""

    __slots__ = ("at", "domain", "key", "tag")

    def __init__(self, key: Key, tag: str, at: int, domain: Domain) -> None:
        self.key = key
        self.tag = tag
        self.at = at
        self.domain = domain

    def __repr__(self) -> str:
        return f"Timer(key={self.key!r}, tag={self.tag!r}, at={self.at}, domain={self.domain.value})"


class Values(list[Any]):
    """Values that were read together. A field that several parts look at is taken out once: twenty thousand dicts do
    not fit into the cache of a processor, so to go through them takes as long as to compare what is found there."""

    __slots__ = ("_columns",)

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self._columns: dict[str, list[Any] | None] = {}

    def column(self, name: str) -> list[Any] | None:
        """A field of all values, or an attribute; None when one lacks it. Whoever changes the field changes it there,
        too."""
        if name not in self._columns:
            self._columns[name] = taken(self, name)
        return self._columns[name]


def taken(values: Sequence[Any], name: str) -> list[Any] | None:
    """See :meth:`Values.column`."""
    if not values:
        return []
    get: Callable[[Any], Any] = itemgetter(name) if type(values[0]) is dict else attrgetter(name)
    try:
        return list(map(get, values))
    except (TypeError, KeyError, AttributeError):
        return None


@dataclass(slots=True)
class Batch:
    """Records of one stream in order, as parallel columns of equal length.

    ``seqs`` rise strictly and number the records in their channel; weak productions are unnumbered (empty). ``keys``
    are under the extractor of the computation the batch goes to. ``ids`` are external ids, or those of weak productions
    (None: there are none). Values that a computation produced are still encoded (``msgspec.Raw``); ``born_us`` is the
    wall clock at which the oldest record entered the system. ``size`` is the approximate size of the encoded batch
    (bytes; 0: not known). ``numbers`` are the keys as an array, if they are all int64 and were available as one.
    """

    stream: str
    seqs: list[int]
    timestamps: list[int]
    keys: list[Key]
    values: list[Any]
    ids: list[Any] | None = None
    born_us: int = 0
    size: int = field(default=0, compare=False)
    numbers: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last_seq(self) -> int:
        """The number of the last record; 0 when they are unnumbered, or none."""
        return self.seqs[-1] if self.seqs else 0

    @property
    def earliest(self) -> int:
        """The lowest timestamp (MAX_TIME: no records)."""
        return min(self.timestamps, default=MAX_TIME)

    @property
    def weight(self) -> int:
        """The credit between two shards that the records take."""
        return max(len(self.timestamps), self.size // CREDIT_BYTES)

    def after(self, seq: int) -> Batch:
        """The records with a number beyond ``seq``; all of them when they are unnumbered."""
        if not self.seqs or self.seqs[0] > seq:
            return self
        return self.tail(bisect_right(self.seqs, seq))

    def rows(self) -> Batch:
        """The records as parallel lists, which they are."""
        return self

    def under(self, keys: list[Key], numbers: npt.NDArray[np.int64] | None = None) -> Batch:
        """The same records under other keys."""
        return Batch(
            *(self.stream, self.seqs, self.timestamps, keys, self.values, self.ids, self.born_us, self.size, numbers)
        )

    def tail(self, start: int) -> Batch:
        """The records from ``start`` on."""
        ids = None if self.ids is None else self.ids[start:]
        return Batch(
            self.stream,
            self.seqs[start:],
            self.timestamps[start:],
            self.keys[start:],
            self.values[start:],
            ids,
            self.born_us,
            self._share(len(self) - start),
        )

    def pick(self, indexes: Sequence[int]) -> Batch:
        """The records at ``indexes``, in that order."""
        at = _picker(indexes)
        return Batch(
            self.stream,
            at(self.seqs) if self.seqs else [],
            at(self.timestamps),
            at(self.keys),
            at(self.values),
            None if self.ids is None else at(self.ids),
            self.born_us,
            self._share(len(indexes)),
        )

    def _share(self, count: int) -> int:
        """About what ``count`` of the records weigh."""
        return self.size * count // (len(self.timestamps) or 1)


def _picker(indexes: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """Takes what is at ``indexes`` out of a column."""
    if len(indexes) < 2:
        return lambda column: [column[index] for index in indexes]
    get = itemgetter(*indexes)
    return lambda column: list(get(column))


@dataclass(slots=True)
class DeadLetter:
    """A record that could not be used, with all the details to understand and replay it. ``error`` is the type of the
    exception, ``what`` the kind of call that failed ("record", "key of STREAM", "line", "timer", "window"); ``raw`` is
    key and value as base64 of msgpack, where JSON would change them; ``history`` are the earlier letters about the same
    record."""

    pipeline: str
    computation: str
    stream: str
    reason: str
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    exception: str = ""
    location: str = ""
    attempts: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    position: str = ""
    error: str = ""
    what: str = ""
    raw: str = ""
    history: list[Any] = field(default_factory=list)
