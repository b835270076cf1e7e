"""Removal of duplicates as a Computation: state per key and identity, removed by the watermark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import xxhash

from millwheel.api import Computation, Context, MapState
from millwheel.core.expressions.fields import field_reader
from millwheel.core.model.records import Record
from millwheel.core.pipeline.spec import DeduplicateSpec

DROPPED = "deduplicated"
"""The counter of dropped records."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_LONGEST = 32  # Fixed: bytes of an identity that is stored as it is; state depends on it


class Deduplicated(Computation):
    """Passes on the first of equal records and drops those within the horizon of it. Built by :func:`deduplicated`."""

    seen: MapState[bytes, int]

    def __init__(self, spec: DeduplicateSpec, outputs: tuple[str, ...]) -> None:
        self._identity = _identity_of(spec.fields)
        self._outputs = outputs

    def process_record(self, ctx: Context, record: Record) -> None:
        """One record is passed on, or counted."""
        identity = self._identity(record.value)
        if identity in self.seen:
            ctx.count(DROPPED)
            return
        self.seen[identity] = record.timestamp
        for stream in self._outputs:
            ctx.produce(stream, record.value)


def deduplicated(spec: DeduplicateSpec, outputs: tuple[str, ...]) -> Deduplicated:
    """The computation for a spec. Its state lives for the horizon."""
    seen: MapState[bytes, int] = MapState(int, ttl=spec.within_us)
    seen.name = "seen"
    kind = type("Deduplicated", (Deduplicated,), {"seen": seen})
    made: Deduplicated = kind(spec, outputs)
    return made


def _identity_of(fields: tuple[str, ...]) -> Callable[[Any], bytes]:
    readers = [field_reader(name) for name in fields]

    def identity(value: Any) -> bytes:
        data = _encode([read(value) for read in readers] if readers else value)
        return data if len(data) <= _LONGEST else xxhash.xxh3_128_digest(data)

    return identity
