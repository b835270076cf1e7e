"""Makes the streams of a pipeline under test visible: a sink in memory, to which each batch is
published once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from millwheel.connect.sinks.base import Sink, SinkBatch, SinkRecord, Writer
from millwheel.core.pipeline.spec import SinkSpec

KIND = "tap"
_CUT_RECORDS = 10_000  # of a batch: tests see whole bundles


class Taps:
    """The target of all taps: the records of every stream so far. It survives all crashes."""

    def __init__(self) -> None:
        self.visible: dict[str, list[SinkRecord]] = defaultdict(list)
        """Records by stream, in the order in which they became visible."""
        self._prepared: dict[bytes, tuple[str, list[SinkRecord]]] = {}
        self._published: set[bytes] = set()

    def build(self, spec: SinkSpec, folder: str) -> Tap:
        """The sink of one stream."""
        return Tap(self, spec.stream)

    def prepare(self, committable: bytes, stream: str, records: list[SinkRecord]) -> None:
        """Store a batch that is not yet visible."""
        self._prepared[committable] = (stream, records)

    def publish(self, committable: bytes) -> None:
        """Make a batch visible, unless it is already."""
        if committable not in self._published:
            self._published.add(committable)
            stream, records = self._prepared.pop(committable)
            self.visible[stream] += records

    def sweep(self, shard: str) -> None:
        """Forget the batches of a shard that were prepared and never committed."""
        for committable in [
            committable
            for committable in self._prepared
            if committable.startswith(f"{shard}/".encode())
        ]:
            del self._prepared[committable]


class Tap(Sink):
    """A :class:`millwheel.connect.sinks.base.Sink` that publishes immediately."""

    flush_us = 0
    cut_records = _CUT_RECORDS

    def __init__(self, taps: Taps, stream: str) -> None:
        self._taps = taps
        self._stream = stream

    def check(self, identity: str) -> None:
        """Memory is always available."""

    def open(self, shard: str, token: int) -> TapWriter:
        """The writer of one shard."""
        return TapWriter(self._taps, self._stream, shard)


class TapWriter(Writer):
    """Writes the batches of one shard."""

    def __init__(self, taps: Taps, stream: str, shard: str) -> None:
        self._taps = taps
        self._stream = stream
        self._shard = shard

    def prepare(self, batch: SinkBatch) -> bytes:
        committable = f"{self._shard}/{batch.number}/{batch.attempt}".encode()
        records = [replace(record, value=plain(record.value)) for record in batch.records]
        self._taps.prepare(committable, self._stream, records)
        return committable

    def publish(self, committable: bytes) -> None:
        self._taps.publish(committable)

    def sweep(self, committables: list[bytes]) -> None:
        self._taps.sweep(self._shard)


def plain(value: Any) -> Any:
    """A copy of a value as plain data, independent of the original."""
    kinds = (bytes, bytearray, datetime, date, time, Decimal)
    return msgspec.to_builtins(value, builtin_types=kinds)
