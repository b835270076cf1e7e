"""What the sinks of a case show: every record of a stream, or its current rows."""

from __future__ import annotations

from typing import Any

from millwheel.connect.sinks.base import SinkBatch
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.tools.testing.taps import Tap, Taps, TapWriter, plain
from tests.search.script import Row


class SearchTaps(Taps):
    """A tap on every stream; streams with an ``upsert`` sink show the current rows instead, by
    shard."""

    def __init__(self, upserts: frozenset[str]) -> None:
        super().__init__()
        self.tables: dict[tuple[str, str], list[Row]] = {}
        self.batches: dict[bytes, tuple[str, str, list[Row]]] = {}
        self._upserts = upserts

    def build(self, spec: SinkSpec, folder: str) -> Tap:
        return (
            _Table(self, spec.stream)
            if spec.stream in self._upserts
            else super().build(spec, folder)
        )


class _Table(Tap):
    """A sink that shows the current rows."""

    keeps_latest = True

    def open(self, shard: str, token: int) -> Any:
        return _TableWriter(self._taps, self._stream, shard)


class _TableWriter(TapWriter):
    """Every batch replaces the one before of the same shard."""

    def prepare(self, batch: SinkBatch) -> bytes:
        committable = f"{self._shard}/{batch.attempt}".encode()
        rows = [Row(record.key, record.timestamp, plain(record.value)) for record in batch.records]
        assert isinstance(self._taps, SearchTaps)
        self._taps.batches[committable] = (self._stream, self._shard, rows)
        return committable

    def publish(self, committable: bytes) -> None:
        assert isinstance(self._taps, SearchTaps)
        stream, shard, rows = self._taps.batches[committable]
        self._taps.tables[stream, shard] = rows

    def sweep(self, committables: list[bytes]) -> None:
        """What was prepared may stay: nobody looks at it."""
