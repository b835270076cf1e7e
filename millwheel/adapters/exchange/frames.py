"""Frames in their protobuf form, put together and taken apart without a copy of their batches.

A message that is given a batch copies it, once more when it becomes part of a frame, and again when
the frame becomes bytes; the same happens on the other side. For batches of a megabyte these copies
cost more than all the rest of a delivery. So the bytes of a message and those of its batch are
joined here, by the rules of protobuf: a field is its tag and its value, fields come in any order,
and two messages behind each other are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError

from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.errors import InvariantError

Buffer = bytes | memoryview

_LARGE_BYTES = 64 << 10
"""Smaller batches and frames are left to protobuf, which has copied them sooner than their fields
are written or found here."""
_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5  # Fixed: wire types of protobuf
_TYPE_BITS, _GROUP_BITS, _MORE = 3, 7, 0x80  # Fixed: of tags and numbers in protobuf
_LONGEST = 10  # Fixed: bytes of a number in protobuf
_SIZES = {_FIXED64: 8, _FIXED32: 4}  # Fixed: bytes of such fields
_DELIVERIES = pb.Frame.DELIVERIES_FIELD_NUMBER
_BATCH = pb.Delivery.BATCH_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class Frame:
    """A received frame: deliveries, each with its batch beside it, acks and refusals."""

    deliveries: Sequence[tuple[pb.Delivery, Buffer]] = ()
    acks: Iterable[pb.Ack] = ()
    refusals: Iterable[pb.Refusal] = ()


@dataclass(slots=True)
class Building:
    """The content of a frame that is not sent yet: a ``message`` with answers and small deliveries,
    and ``deliveries`` as bytes behind it. ``size`` is that of the batches."""

    message: pb.Frame = field(default_factory=pb.Frame)
    deliveries: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, delivery: pb.Delivery, batch: Sequence[bytes]) -> None:
        """Queue a delivery, which has no batch yet, and its batch in pieces."""
        size = sum(map(len, batch))
        # only before those that are bytes: all stay in order
        if size < _LARGE_BYTES and not self.deliveries:
            delivery.batch = b"".join(batch)
            self.message.deliveries.append(delivery)
            self.size += size
            return
        # Of two batches of a delivery, protobuf has the last: the other would be lost.
        if delivery.batch:
            raise InvariantError(f"a delivery on {delivery.channel} has a batch already")
        head = delivery.SerializeToString() + _tag(_BATCH) + _number(size)
        self.deliveries += (_tag(_DELIVERIES) + _number(len(head) + size) + head, *batch)
        self.size += size

    def pieces(self) -> list[bytes]:
        """The bytes of the frame, piece by piece; none for an empty frame."""
        message = self.message.SerializeToString()
        return [message, *self.deliveries] if message else self.deliveries


def taken_apart(data: Buffer) -> Frame:
    """A received frame. Its batches are parts of ``data`` if it is large. Raises DecodeError."""
    if len(data) < _LARGE_BYTES:
        message = pb.Frame.FromString(bytes(data))
        return Frame(
            [(delivery, delivery.batch) for delivery in message.deliveries],
            message.acks,
            message.refusals,
        )
    view = memoryview(data)
    deliveries, rest = [], []
    for each in _fields(view):
        if each.number == _DELIVERIES and each.kind == _LEN:
            deliveries.append(_delivery(each.value))
        else:
            rest.append(each.whole)
    message = pb.Frame.FromString(b"".join(rest))
    return Frame(deliveries, message.acks, message.refusals)


def _delivery(view: memoryview) -> tuple[pb.Delivery, Buffer]:
    batch: Buffer = b""
    rest = []
    for each in _fields(view):
        if each.number == _BATCH and each.kind == _LEN:
            batch = each.value
        else:
            rest.append(each.whole)
    return pb.Delivery.FromString(b"".join(rest)), batch


class _Field(NamedTuple):
    number: int
    kind: int
    whole: memoryview
    value: memoryview


def _fields(view: memoryview) -> Iterator[_Field]:
    at = 0
    while at < len(view):
        tag, begin = _number_at(view, at)
        kind = tag & ((1 << _TYPE_BITS) - 1)
        if kind == _LEN:
            size, begin = _number_at(view, begin)
            end = begin + size
        elif kind == _VARINT:
            end = _number_at(view, begin)[1]
        elif kind in _SIZES:
            end = begin + _SIZES[kind]
        else:
            raise DecodeError(f"a frame has a field of the unknown kind {kind}")
        if end > len(view):
            raise DecodeError("a frame ends within a field")
        yield _Field(tag >> _TYPE_BITS, kind, view[at:end], view[begin:end])
        at = end


def _number_at(view: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = shift = 0
    for byte in view[at : at + _LONGEST]:
        at += 1
        number |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return number, at
        shift += _GROUP_BITS
    raise DecodeError("a frame ends within a number")


def _number(number: int) -> bytes:
    """The inverse of :func:`_number_at`."""
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number & ~_MORE & 0xFF | _MORE)
        number >>= _GROUP_BITS
    encoded.append(number)
    return bytes(encoded)


def _tag(field_number: int) -> bytes:
    return _number(field_number << _TYPE_BITS | _LEN)
