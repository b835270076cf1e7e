"""Per-key delivery in the order of timestamps: a record is kept until the watermark has passed it.

A kept record is an entry of the store and an event-time timer of the system's own. So it holds the watermark, comes
due in order with the timers of the callback, and survives what timers survive. Records of one key and time come in the
order of channel and number there, however they arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millwheel.core.formats.codec import encode_value
from millwheel.core.formats.store_layout import STATE, key_prefix
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch, Domain, Record
from millwheel.core.model.timers import Due
from millwheel.errors import invariant
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.state.overlay import Overlay

ORDER_TAG = "\0r"
"""How the tags of kept records begin: before every tag of a callback, and before those of times to live."""


class _Kept(msgspec.Struct, array_like=True):
    """``timestamp``: where it is not the time at which the record comes due."""

    stream: str
    value: msgspec.Raw
    timestamp: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


class OrderBuffer:
    """The records of one shard that wait for the watermark. Of those of one key and time, those of the stream
    ``first`` come first."""

    def __init__(self, overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]], first: str = "") -> None:
        self._overlay = overlay
        self._decode = decode
        self._first = first
        self._nameless = 0

    def keep(self, batch: Batch, channel: ChannelName, bundle: Bundle, indexes: range) -> None:
        """Put the records at these indexes of a batch aside."""
        timers = bundle.timers[Domain.EVENT]
        for index in indexes:
            key, timestamp = batch.keys[index], batch.timestamps[index]
            # Timers of one time fire in the order of their tags. So the tag is made of what a second delivery has, too:
            # in the order of arrival a crash would change the results. See test_order_survives_crashes.
            rank = "0" if batch.stream == self._first else "1"
            tag = f"{ORDER_TAG}{rank}{channel}:{self._name(batch, index, bundle)}"
            put_aside(self._overlay, tag, batch, index)
            timers.set(key, tag, timestamp)

    def _name(self, batch: Batch, index: int, bundle: Bundle) -> str:
        """Unique to the record, and the same whenever it is delivered, if it has a number or an id."""
        if batch.seqs:
            return f"{batch.seqs[index]:020d}"
        own = batch.ids[index] if batch.ids is not None else None
        if own is not None:
            return f"{encode_value(own).hex()}:{batch.timestamps[index]}"
        # See mistake records_without_a_name_share_one.
        # Weak productions of an at-least-once computation have neither. Two of one key and time are two records: they
        # are named by the commit that takes them in, whose number no other owner uses, and come as they have arrived.
        self._nameless += 1
        return f"{bundle.number:020d}:{self._nameless:020d}"

    def take(self, due: Due) -> Record:
        """The record that came due, which is kept no longer."""
        return taken_back(self._overlay, self._decode, due)


def put_aside(overlay: Overlay, tag: str, batch: Batch, index: int, timestamp: int | None = None) -> None:
    """Store a record of a batch until the timer of its key with this tag comes due: at its ``timestamp``, if none is
    given."""
    key, value, raw = batch.keys[index], batch.values[index], msgspec.Raw
    encoded = value if type(value) is raw else raw(encode_value(value))
    overlay.put(_store_key(key, tag), _encode(_Kept(batch.stream, encoded, timestamp)))


def taken_back(overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]], due: Due) -> Record:
    """The record of a timer that came due. The store has it no longer."""
    index = _store_key(due.key, due.tag)
    data = overlay.get(index)
    invariant(data is not None, f"the record of timer {due.tag!r} of key {due.key!r} is gone")
    assert data is not None
    overlay.delete(index)
    kept = _decode(data)
    [value] = decode(kept.stream, [kept.value])
    return Record(due.key, value, due.at if kept.timestamp is None else kept.timestamp, kept.stream)


def _store_key(key: Key, tag: str) -> bytes:
    return key_prefix(STATE, key, key_hash(key)) + tag.encode()
