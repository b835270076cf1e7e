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
from millwheel.errors import InvariantError

# `millwheel --help` loads this file, and numpy takes longer than all the rest of it
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
    Int64s = npt.NDArray[np.int64]
    Ints = list[int] | Int64s
else:
    from typing import TypeVar

    V = TypeVar("V")


NO_LABEL = MAX_TIME
"""The label of a record that has none, among others that have one. It holds no watermark."""
_MANY = 16
"""If at least one in so many records is left out, the others are picked."""


class Domain(Enum):
    """The clock a timer obeys."""

    EVENT = "event"
    """The low watermark of the computation's inputs."""
    PROCESSING = "processing"
    """The worker's wall clock."""

    # Timer queues are looked up by it many times per step; the hash of Enum is computed in Python.
    __hash__ = object.__hash__


class Record(msgspec.Struct, Generic[V], gc=False):
    """The argument of ``process_record``: ``key``, ``value``, ``timestamp`` (µs UTC) and the
    ``stream`` of the record. In annotations ``Record[Click]`` gives the type of the value."""

    key: Key
    value: V
    timestamp: int
    stream: str


class Timer:
    """The argument of ``process_timer``: the ``tag`` and time ``at`` (µs) it was set for, and its
    ``domain``."""

    __slots__ = ("at", "domain", "key", "tag")

    def __init__(self, key: Key, tag: str, at: int, domain: Domain) -> None:
        self.key = key
        self.tag = tag
        self.at = at
        self.domain = domain

    def __repr__(self) -> str:
        return (
            f"Timer(key={self.key!r}, tag={self.tag!r}, at={self.at}, domain={self.domain.value})"
        )


class Values(list[Any]):
    """Values that were read together. A field that several parts read is taken out once: twenty
    thousand dicts do not fit into the cache of a processor, so going through them takes as long as
    comparing the values found there.

    ``kind`` is the type of all of them, if they were decoded into one, from a text of
    ``text_bytes``."""

    __slots__ = ("_columns", "_kinds", "_numbers", "kind", "text_bytes")

    def __init__(
        self, values: Iterable[Any], kind: type | None = None, text_bytes: int = 0
    ) -> None:
        super().__init__(values)
        self._columns: dict[str, list[Any] | None] = {}
        self._kinds: dict[str, set[type]] = {}
        self._numbers: dict[str, Int64s | None] = {}
        self.kind = kind
        self.text_bytes = text_bytes

    def column(self, name: str) -> list[Any] | None:
        """A field of all values, or an attribute; None when one lacks it. Code that changes the
        field changes it there, too."""
        if name not in self._columns:
            self._columns[name] = taken(self, name)
        return self._columns[name]

    def numbers(self, name: str) -> Int64s | None:
        """A field as an array; None unless it is a whole number of up to 64 bits in all values."""
        if name not in self._numbers:
            self._numbers[name] = numbers_in(self.column(name))
        return self._numbers[name]

    def kinds(self, name: str) -> set[type]:
        """The types of a field; none when some value lacks it."""
        if name not in self._kinds:
            self._kinds[name] = set(map(type, self.column(name) or ()))
        return self._kinds[name]

    def changed(self, name: str) -> None:
        """Note that a field has changed."""
        self._numbers.pop(name, None)
        self._kinds.pop(name, None)


def numbers_in(column: Sequence[Any] | None) -> Int64s | None:
    """Whole numbers of up to 64 bits as an array; None when there are others, or nothing."""
    ints = ints_of(column) if column else None
    return None if ints is None else numbers_of(ints)


def numbers_of(ints: list[int]) -> Int64s | None:
    """Whole numbers as an array; None when one of them takes more than 64 bits."""
    import numpy as np  # not above: see there

    try:
        return np.array(ints, np.int64)
    except OverflowError:
        return None


def ints_of(values: Sequence[Any]) -> list[int] | None:
    """The values as plain ints, if all are whole numbers (no bools); else None. Takes a third of
    the time of checking their types."""
    try:
        return msgspec.convert(values, list[int])
    except msgspec.ValidationError:
        return None


def taken(values: Sequence[Any], name: str) -> list[Any] | None:
    """See :meth:`Values.column`."""
    if not values:
        return []
    get: Callable[[Any], Any] = itemgetter(name) if type(values[0]) is dict else attrgetter(name)
    try:
        return list(map(get, values))
    except (TypeError, KeyError, AttributeError):
        return None


class Batch:
    """Records of one stream in order, as parallel columns of equal length.

    ``seqs`` rise strictly and number the records in their channel; weak productions are unnumbered
    (empty). ``keys`` are under the extractor of the computation the batch goes to. ``ids`` are
    external ids, or those of weak productions (None: there are none). Values that a computation
    produced are still encoded (``msgspec.Raw``); ``born_us`` is the wall clock at which the oldest
    record entered the system. ``size`` is the approximate size of the encoded batch (bytes; 0:
    unknown). ``labels`` are watermarks, one for each record: that of its source partition at its
    position, or at the position of its cause (None: they have none).

    Most batches are only routed, cut and sent on. So ``seqs``, ``timestamps`` and ``keys`` may be
    passed as arrays of int64, and ``values`` as one encoded array: they become lists when they are
    first read. The attributes ``held…`` have them as they were passed; ``numbers`` are the keys, if
    they were passed as an array.
    """

    __slots__ = (
        "_keys",
        "_seqs",
        "_timestamps",
        "_values",
        "born_us",
        "ids",
        "labels",
        "numbers",
        "size",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        seqs: Ints,
        timestamps: Ints,
        keys: list[Key] | Int64s,
        values: list[Any] | msgspec.Raw,
        ids: list[Any] | None = None,
        born_us: int = 0,
        size: int = 0,
        labels: Ints | None = None,
    ) -> None:
        self.stream = stream
        self._seqs = seqs
        self._timestamps = timestamps
        self._keys = keys
        self.numbers = None if isinstance(keys, list) else keys
        self._values = values
        self.ids = ids
        self.born_us = born_us
        self.size = size
        self.labels = labels

    @property
    def seqs(self) -> list[int]:
        """See the class."""
        seqs = self._seqs
        if not isinstance(seqs, list):
            seqs = self._seqs = seqs.tolist()
        return seqs

    @property
    def timestamps(self) -> list[int]:
        """See the class."""
        timestamps = self._timestamps
        if not isinstance(timestamps, list):
            timestamps = self._timestamps = timestamps.tolist()
        return timestamps

    @property
    def keys(self) -> list[Key]:
        """See the class."""
        keys = self._keys
        if not isinstance(keys, list):
            keys = self._keys = keys.tolist()
        return keys

    @property
    def values(self) -> list[Any]:
        """See the class."""
        values = self._values
        if isinstance(values, msgspec.Raw):
            values = self._values = _raws(values)
        return values

    def keep_encoded(self, values: msgspec.Raw) -> None:
        """Hold the values as these bytes, one encoded array, from now on: user code may change the
        objects."""
        self._values = values

    @property
    def held_keys(self) -> list[Key] | Int64s:
        return self._keys if self.numbers is None else self.numbers

    @property
    def held_seqs(self) -> Ints:
        return self._seqs

    @property
    def held_timestamps(self) -> Ints:
        return self._timestamps

    @property
    def held_values(self) -> list[Any] | msgspec.Raw:
        return self._values

    def __len__(self) -> int:
        return len(self._timestamps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Batch{self._parts()!r}"

    def _parts(self) -> tuple[Any, ...]:
        labels = None if self.labels is None else list(map(int, self.labels))
        return (
            self.stream,
            self.seqs,
            self.timestamps,
            self.keys,
            self.values,
            self.ids,
            self.born_us,
            labels,
        )

    @property
    def last_seq(self) -> int:
        """The number of the last record; 0 when they are unnumbered, or none."""
        return int(self._seqs[-1]) if len(self._seqs) else 0

    @property
    def earliest(self) -> int:
        """The lowest timestamp or label (MAX_TIME: no records), at which they hold the
        watermark."""
        # By their timestamps alone, the watermark of a consumer could pass a timer that comes
        # behind a record in flight: its label may lie before its timestamp by max_delay. See
        # mistake records_in_flight_hold_no_label.
        lowest = _lowest(self._timestamps)
        return lowest if self.labels is None else min(lowest, _lowest(self.labels))

    @property
    def weight(self) -> int:
        """The credit between two shards that the records take."""
        return max(len(self._timestamps), self.size // CREDIT_BYTES)

    def after(self, seq: int) -> Batch:
        """The records with a number beyond ``seq``; all of them when they are unnumbered."""
        if not len(self._seqs) or self._seqs[0] > seq:
            return self
        return self.tail(bisect_right(self._seqs, seq))

    def rows(self) -> Batch:
        """The records as parallel lists, which they are."""
        return self

    def under(self, keys: list[Key] | Int64s) -> Batch:
        """The same records under other keys."""
        return self._with(self.stream, self._seqs, keys, self.born_us)

    def named(self, stream: str) -> Batch:
        """The same records of another stream."""
        return self._with(stream, self._seqs, self.held_keys, self.born_us)

    def numbered(self, seqs: Ints, born_us: int) -> Batch:
        """The same records with other numbers."""
        return self._with(self.stream, seqs, self.held_keys, born_us)

    def _with(self, stream: str, seqs: Ints, keys: list[Key] | Int64s, born_us: int) -> Batch:
        # Cut later, the numbers or keys of one record would be those of another.
        count = len(self._timestamps)
        if len(seqs) not in (0, count) or len(keys) != count:
            raise InvariantError(f"{count} records of {stream} get {len(seqs)} numbers")
        return Batch(
            stream,
            seqs,
            self._timestamps,
            keys,
            self._values,
            self.ids,
            born_us,
            self.size,
            self.labels,
        )

    def tail(self, start: int) -> Batch:
        """The records from ``start`` on."""
        ids = None if self.ids is None else self.ids[start:]
        return Batch(
            self.stream,
            self._seqs[start:],
            self._timestamps[start:],
            self.held_keys[start:],
            self.values[start:],
            ids,
            self.born_us,
            self._share(len(self) - start),
            None if self.labels is None else self.labels[start:],
        )

    def pick(self, indexes: Sequence[int] | Int64s) -> Batch:
        """The records at ``indexes``, in that order."""
        at = _picker(indexes)
        return Batch(
            self.stream,
            at(self._seqs) if len(self._seqs) else [],
            at(self._timestamps),
            at(self.held_keys),
            at(self.values),
            None if self.ids is None else at(self.ids),
            self.born_us,
            self._share(len(indexes)),
            None if self.labels is None else at(self.labels),
        )

    def _share(self, count: int) -> int:
        """About the size of ``count`` of the records."""
        return self.size * count // (len(self._timestamps) or 1)


_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def unlabelled(batch: Batch) -> Batch:
    """The same records for a consumer that does not look at labels."""
    if batch.labels is None:
        return batch
    copy = batch.named(batch.stream)
    copy.labels = None
    return copy


def without(batch: Batch, indexes: Sequence[int]) -> Batch:
    """All records but those at ``indexes``, which rise. Where these are few, the stretches between
    them are copied."""
    if len(indexes) * _MANY > len(batch):
        dropped = set(indexes)
        return batch.pick([index for index in range(len(batch)) if index not in dropped])

    def cut(column: Any) -> Any:
        result, start = column[:0], 0
        if not isinstance(column, list):
            mask = column == column
            mask[indexes] = False
            return column[mask]
        for index in indexes:
            result += column[start:index]
            start = index + 1
        result += column[start:]
        return result

    ids = None if batch.ids is None else cut(batch.ids)
    held = cut(batch.held_seqs), cut(batch.held_timestamps), cut(batch.held_keys), cut(batch.values)
    size = batch.size * (len(batch) - len(indexes)) // (len(batch) or 1)
    labels = None if batch.labels is None else cut(batch.labels)
    return Batch(batch.stream, *held, ids, batch.born_us, size, labels)


def _lowest(numbers: Ints) -> int:
    if isinstance(numbers, list):
        return min(numbers, default=MAX_TIME)
    return int(numbers.min()) if len(numbers) else MAX_TIME


def _picker(indexes: Sequence[int] | Int64s) -> Callable[[Any], Any]:
    """A function that takes the values at ``indexes`` out of a column."""
    rows = indexes if isinstance(indexes, Sequence) else indexes.tolist()
    get: Callable[[Any], Iterable[Any]] = (
        itemgetter(*rows) if len(rows) > 1 else lambda column: [column[i] for i in rows]
    )
    return lambda column: list(get(column)) if isinstance(column, list) else column[indexes]


@dataclass(slots=True)
class DeadLetter:
    """A record that could not be used, with all the details to understand and replay it. ``error``
    is the type of the exception, ``what`` the kind of call that failed ("record", "key of STREAM",
    "line", "timer", "window"); ``raw`` is key and value as base64 of msgpack, where JSON would
    change them; ``history`` are the earlier letters about the same record."""

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
