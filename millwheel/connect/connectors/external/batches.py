"""A batch as bytes for the journal: its rows are stored there before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from millwheel.connect.sinks.base import Refused, SinkRecord
from millwheel.core.formats.codec import encode_value, tuple_key
from millwheel.core.model.damage import checked


class RowBatch(msgspec.Struct, frozen=True, array_like=True):
    """The records that one transaction writes, as (key, value, timestamp). ``number`` counts from 0
    in the shard."""

    number: int
    rows: list[tuple[Any, Any, int]]

    def records(self) -> list[SinkRecord]:
        """The records as the sink received them."""
        return [SinkRecord(tuple_key(key), value, timestamp) for key, value, timestamp in self.rows]


_encode = msgspec.msgpack.Encoder().encode
decode_rows = checked(msgspec.msgpack.Decoder(RowBatch).decode, "the rows of a batch")
"""The inverse of :func:`encode_rows`. Raises CorruptionError for damaged bytes."""


def encode_rows(number: int, records: Sequence[SinkRecord]) -> bytes:
    """A batch in the form in which its shard's commit stores it. Raises msgspec's errors for values
    that are not plain data."""
    return _encode(
        RowBatch(number, [(record.key, record.value, record.timestamp) for record in records])
    )


def encode_what_can(number: int, records: Sequence[SinkRecord]) -> tuple[bytes, list[Refused]]:
    """:func:`encode_rows` without the records whose values are not plain data; these records are
    returned beside it."""
    try:
        return encode_rows(number, records), []
    except (TypeError, ValueError, OverflowError):
        reasons = [_why_not(record) for record in records]
    good = [record for record, reason in zip(records, reasons, strict=True) if not reason]
    refused = [
        Refused(record, reason) for record, reason in zip(records, reasons, strict=True) if reason
    ]
    return encode_rows(number, good), refused


def _why_not(record: SinkRecord) -> str:
    try:
        encode_value((record.key, record.value))
    except (TypeError, ValueError, OverflowError) as ex:
        return f"the value cannot be written: {ex}"
    return ""
