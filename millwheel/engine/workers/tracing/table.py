"""The trace contexts of records in this worker, beside the records: by channel and by number or id.

A record that is traced looks like any other. Its context is found by the record's own identity, so
batches, columns and durable formats have no traces. The table is advisory: it is bounded, and gone
with the worker.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from millwheel.core.columns.batch import AnyBatch, Int64s
from millwheel.core.model.damage import DAMAGE
from millwheel.core.tracing import TraceContext, context_of

Identity = int | str | bytes
"""The number of a record in its channel, or the id of one without a number."""
_CHANNELS = 1_024  # that are remembered
_EACH = 4_096  # records of a channel that are remembered
_SENT = 256  # contexts that go with one delivery


class Arrived(NamedTuple):
    """The context of a record. ``sent_us`` and ``came_us`` are the times at which it left the
    worker ``sender`` and came here (wall clocks of two machines; 0: it was here all the time)."""

    context: TraceContext
    sender: str = ""
    sent_us: int = 0
    came_us: int = 0


class _Form(msgspec.Struct, array_like=True):
    sender: str
    sent_us: int
    records: list[tuple[Any, str, str]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Form).decode


def index_of(seqs: list[int] | Int64s, number: int) -> int:
    """The index of a number among rising ones, or where it would be."""
    # numpy would make an array of the list for each number, and take longer than to process the
    # batch.
    return (
        bisect_left(seqs, number) if isinstance(seqs, list) else int(np.searchsorted(seqs, number))
    )


@dataclass(slots=True)
class _Channel:
    numbers: list[int] = field(default_factory=list)
    arrivals: dict[Identity, Arrived] = field(default_factory=dict)

    def put(self, identity: Identity, arrived: Arrived) -> None:
        if isinstance(identity, int) and identity not in self.arrivals:
            insort(self.numbers, identity)
        self.arrivals[identity] = arrived
        if len(self.arrivals) > _EACH:
            self._forget(next(iter(self.arrivals)))

    def _forget(self, identity: Identity) -> None:
        del self.arrivals[identity]
        if isinstance(identity, int):
            del self.numbers[bisect_left(self.numbers, identity)]

    def found(self, batch: AnyBatch) -> Iterator[tuple[int, Identity]]:
        """(index in the batch, identity) of its traced records, in order."""
        seqs = batch.seqs
        if not len(seqs):
            for index, identity in enumerate(() if batch.ids is None else batch.ids):
                if identity in self.arrivals:
                    yield index, identity
            return
        numbers = self.numbers
        for number in numbers[
            bisect_left(numbers, int(seqs[0])) : bisect_right(numbers, int(seqs[-1]))
        ]:
            index = index_of(seqs, number)
            if seqs[index] == number:
                yield index, number


class TraceTable:
    """For the thread of the loop."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def put(self, channel: str, identity: Identity, arrived: Arrived) -> None:
        """Remember the context of a record, in place of one that it had before."""
        entry = self._channels.get(channel)
        if entry is None:
            if len(self._channels) >= _CHANNELS:
                del self._channels[next(iter(self._channels))]
            entry = self._channels[channel] = _Channel()
        entry.put(identity, arrived)

    def found(self, channel: str, batch: AnyBatch) -> list[tuple[int, Arrived]]:
        """(index in the batch, context) of the traced records of a batch, in order."""
        entry = self._channels.get(channel)
        return (
            []
            if entry is None
            else [(index, entry.arrivals[each]) for index, each in entry.found(batch)]
        )

    def outgoing(self, channel: str, batch: AnyBatch, sender: str, now_us: int) -> bytes:
        """The contexts of a batch, to travel beside it; b"" if none of its records is traced."""
        entry = self._channels.get(channel)
        if entry is None:
            return b""
        records = [(each, *entry.arrivals[each].context) for _, each in entry.found(batch)]
        return _encode(_Form(sender, now_us, records[:_SENT])) if records else b""

    def incoming(self, channel: str, data: bytes, now_us: int) -> None:
        """Remember the contexts that a peer has sent beside a batch. Invalid ones are ignored:
        traces are no reason to stop a worker."""
        try:
            form = _decode(data)
        except DAMAGE:
            return
        for identity, parent, state in form.records[:_SENT]:
            context = context_of(parent, state)
            if context is not None and isinstance(identity, int | str | bytes):
                self.put(channel, identity, Arrived(context, form.sender, form.sent_us, now_us))
