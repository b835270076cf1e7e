"""The order of a key's records and timers in callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import msgspec

from millwheel.core.formats.codec import encode_value
from millwheel.core.formats.store_layout import (
    STATE,
    key_prefix,
    number8,
    number_from8,
    timer_key,
)
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import NO_LABEL, Batch, Domain, Record
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import BEGINNING, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import EnrichSpec
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.waiting_records import (
    ORDER_TAG,
    WaitingRecord,
    WaitingRecords,
)
from millwheel.errors import InvariantError, invariant


class _Kept(msgspec.Struct, array_like=True):
    """A stored record. ``timestamp``: where it is not the time at which the record comes due."""

    stream: str
    value: msgspec.Raw
    timestamp: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


_AT = "@"
"""The mark before a record's own time in the tag of one that waits until another time."""


class OrderBuffer:
    """The records of one shard that wait for the watermark. Of those of one key and time, those of
    the stream ``first`` come first. ``until``: all wait until it has passed that instant, and not
    their own times."""

    def __init__(
        self,
        overlay: Overlay,
        decode: Callable[[str, list[Any]], list[Any]],
        first: str = "",
        until: int | None = None,
    ) -> None:
        self._overlay = overlay
        self._decode = decode
        self._first = first
        self._nameless = 0
        self._waiting = WaitingRecords(overlay)
        self._until = until

    def keep(self, batch: Batch, channel: ChannelName, bundle: Bundle, indexes: range) -> None:
        """Put the records at these indexes of a batch aside."""
        timers = bundle.timers[Domain.EVENT]
        for index in indexes:
            key, timestamp = batch.keys[index], batch.timestamps[index]
            # Timers of one time fire in the order of their tags. So the tag is made of values that
            # a second delivery has, too: in the order of arrival a crash would change the results.
            # See test_order_survives_crashes.
            rank = "0" if batch.stream == self._first else "1"
            tag = f"{ORDER_TAG}{rank}{channel}:{self._name(batch, index, bundle)}"
            if self._until is not None:
                tag += f"{_AT}{timestamp}"
                timestamp = self._until
            if timers.get(key, tag) is None:
                value = _encoded(batch.values[index])
                self._waiting.keep(WaitingRecord(key, tag, timestamp, batch.stream, value))
                timers.set(key, tag, timestamp)

    def _name(self, batch: Batch, index: int, bundle: Bundle) -> str:
        """Unique to the record, and the same whenever it is delivered, if it has a number or an
        id."""
        if batch.seqs:
            return f"{batch.seqs[index]:020d}"
        own = batch.ids[index] if batch.ids is not None else None
        if own is not None:
            return f"{encode_value(own).hex()}:{batch.timestamps[index]}"
        # See mistake records_without_a_name_share_one.
        # Weak productions of an at-least-once computation have neither. Two of one key and time are
        # two records: they are named by the commit that takes them in, whose number no other owner
        # uses, and come as they have arrived.
        self._nameless += 1
        return f"{bundle.number:020d}:{self._nameless:020d}"

    def take(self, due: Due) -> Record:
        """The record that came due, which is kept no longer."""
        row = self._waiting.take(due.key, due.tag)
        if row is None:
            # Kept by a version that stored an entry and a timer of each record.
            self._overlay.delete(timer_key(due.key, key_hash(due.key), due.domain, due.tag))
            return taken_back(self._overlay, self._decode, due)
        stream, encoded = row
        [value] = self._decode(stream, [encoded])
        at = due.at if self._until is None else int(due.tag.rpartition(_AT)[2])
        return Record(due.key, value, at, stream)

    def forget(self) -> None:
        """Undo the changes of the bundle."""
        self._waiting.forget()

    def write(self) -> None:
        """Write the records that the bundle has kept and taken to the store."""
        self._waiting.write()


def order_buffer(
    spec: ComputationSpec, overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]]
) -> OrderBuffer | None:
    """The buffer of records that wait for the watermark. A version holds for records of its own
    time."""
    if isinstance(spec.work, EnrichSpec) and spec.work.held:
        return None
    if isinstance(spec.work, EnrichSpec) and spec.work.waits:
        until = BEGINNING if spec.work.timeless else None
        return OrderBuffer(overlay, decode, spec.work.stream, until)
    return OrderBuffer(overlay, decode) if spec.ordered else None


def put_aside(overlay: Overlay, tag: str, batch: Batch, index: int, timestamp: int) -> None:
    """Store a record of a batch until the timer of its key with this tag comes due."""
    kept = _Kept(batch.stream, _encoded(batch.values[index]), timestamp)
    overlay.put(_store_key(batch.keys[index], tag), _encode(kept))


def _encoded(value: Any) -> msgspec.Raw:
    return value if type(value) is msgspec.Raw else msgspec.Raw(encode_value(value))


def taken_back(overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]], due: Due) -> Record:
    """The record of a timer that came due. The store has it no longer."""
    index = _store_key(due.key, due.tag)
    data = overlay.get(index)
    invariant(data is not None, f"the record of timer {due.tag!r} of key {due.key!r} is gone")
    assert data is not None
    overlay.delete(index)
    stored = _decode(data)
    [value] = decode(stored.stream, [stored.value])
    return Record(
        due.key, value, due.at if stored.timestamp is None else stored.timestamp, stored.stream
    )


def _store_key(key: Key, tag: str) -> bytes:
    return key_prefix(STATE, key, key_hash(key)) + tag.encode()


T = TypeVar("T")
ASIDE_TAG = "\U0010ffffr"
"""The beginning of the tags of records that are put aside: behind those of a callback's timers of
the same time."""


def label_bytes(label: int) -> bytes:
    """The stored label of a timer that a call has set for a time before its own label."""
    return number8(label)


def label_of(due: Due, has_cause: bool) -> int:
    """The label of a timer's call: its time, or the label of the call that has set it for an
    earlier one, if that has one. So the labels of a key's calls never fall."""
    if due.tag.startswith(ASIDE_TAG):
        return due.at + 1
    return max(due.at, number_from8(due.cause)) if due.cause and not has_cause else due.at


@dataclass(slots=True)
class _Waiting:
    """The records of one key that were put aside: how many, and until when the last of them
    waits."""

    count: int = 0
    until: int = MIN_TIME

    def add(self, until: int) -> None:
        self.count, self.until = self.count + 1, max(self.until, until)

    def less(self) -> bool:
        """Note that one has come; True when it was the last."""
        self.count -= 1
        # Past 0 it is never the last: records of the key would wait behind nothing for ever.
        if self.count < 0:
            raise InvariantError(f"{-self.count} records more have come than were put aside")
        return not self.count


class Positions:
    """The records of one shard among its timers. ``follows``: see the module."""

    def __init__(
        self, overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]], follows: bool
    ) -> None:
        self.follows = follows
        self._overlay = overlay
        self._decode = decode
        self._number = 0
        self._waiting: dict[Key, _Waiting] | None = None
        self._changed = False

    def none_wait(self, bundle: Bundle) -> bool:
        """Whether no record is put aside."""
        return not self._waiting_in(bundle.timers[Domain.EVENT])

    def rows(
        self,
        rows: Iterable[T],
        batch: Batch,
        bundle: Bundle,
        begin: Callable[[int], None],
        fire: Callable[[], None],
    ) -> Iterator[T]:
        """The rows that come now, each behind a call of ``begin`` with its label. ``fire`` fires
        the timers that the clock of the bundle has passed."""
        labels = repeat(NO_LABEL, len(batch)) if batch.labels is None else map(int, batch.labels)
        for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
            if self._comes(batch, index, label, bundle, fire):
                begin(label)
                yield row

    def _comes(
        self, batch: Batch, index: int, label: int, bundle: Bundle, fire: Callable[[], None]
    ) -> bool:
        queue = bundle.timers[Domain.EVENT]
        if label == NO_LABEL:
            waiting = self._waiting_in(queue)
            if waiting and (those := waiting.get(batch.keys[index])) is not None:
                # It must not overtake those of its sender that wait.
                self._put_aside(batch, index, those.until, bundle)
                return False
            return True
        if self.follows and label > bundle.clock:
            bundle.clock = label
        if queue.earliest >= label:
            return True
        if self.follows:
            fire()
        # Also where more timers are due than may fire in one bundle.
        if queue.first_of(batch.keys[index], _matters) >= label:
            return True
        self._put_aside(batch, index, label - 1, bundle)
        return False

    def _put_aside(self, batch: Batch, index: int, until: int, bundle: Bundle) -> None:
        self._number += 1
        key = batch.keys[index]
        # In the order of arrival, which is that of production for the records of one sender's key,
        # however its shards are divided meanwhile.
        named = (
            f"{batch.seqs[index]:020d}"
            if self.follows and batch.seqs
            else f"{bundle.number:020d}:{self._number:020d}"
        )
        tag = ASIDE_TAG + named
        put_aside(self._overlay, tag, batch, index, batch.timestamps[index])
        bundle.timers[Domain.EVENT].set(key, tag, until)
        self._changed = True
        if self._waiting is not None:
            self._waiting.setdefault(key, _Waiting()).add(until)

    def take(self, due: Due) -> Record:
        """The record that waited until then."""
        self._changed = True
        if self._waiting is not None and self._waiting[due.key].less():
            del self._waiting[due.key]
        return taken_back(self._overlay, self._decode, due)

    def forget(self) -> None:
        """Undo the changes of the bundle."""
        if self._changed:
            self._waiting = None

    def _waiting_in(self, queue: TimerQueue) -> dict[Key, _Waiting]:
        if self._waiting is None:
            self._waiting, self._changed = {}, False
            for key, tag, at in queue.items():
                if tag.startswith(ASIDE_TAG):
                    self._waiting.setdefault(key, _Waiting()).add(at)
        return self._waiting


def _matters(tag: str) -> bool:
    """Whether a timer must come before a record that finds it due. Reads of state go by times, not
    by its removal."""
    return not tag.startswith(TTL_TAG)
