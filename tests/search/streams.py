"""What is pushed to the streams of a case, read as records and as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from millwheel.connect.sources.base import FrameChunk
from millwheel.tools.testing.pushes import PushedReader, PushedStream

_POLL_US = 2_000_000
_MOST = 100_000
_KINDS = {"int": int, "str": str, "float": float, "bool": bool}
_TYPES = {"int": pl.Int64, "str": pl.String, "float": pl.Float64, "bool": pl.Boolean}


class _OwnWatermark(PushedReader):
    """A reader that states no watermark, so that the source makes one of ``max_delay`` and
    ``idle_after``."""

    def read(self, position: int, max_records: int) -> Any:
        chunk = super().read(position, max_records)
        chunk.watermark = None
        chunk.caught_up = not chunk.finished and chunk.next_position >= len(self._log)
        return chunk


class _Columns(_OwnWatermark):
    """Reads the same into columns, too."""

    def __init__(self, stream: PushedStream, log: Any, fields: Mapping[str, str]) -> None:
        super().__init__(stream, log)
        self._schema = {name: _TYPES[kind] for name, kind in fields.items()}
        self._whole = False
        self._inferred: dict[str, type] = {}

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        self._schema, self._whole = {name: _TYPES[kind] for name, kind in fields.items()}, True
        return True

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        self._schema = {name: _TYPES[kind] for name, kind in fields.items()}
        self._inferred = {name: _KINDS[kind] for name, kind in fields.items()}
        return True

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """All that :meth:`read` gives, as columns."""
        chunk = self.read(position, _MOST)
        if any(
            type(value.get(name)) is not kind
            for value in chunk.values
            for name, kind in self._inferred.items()
        ):
            return None
        if self._whole and any(value.keys() - self._schema.keys() for value in chunk.values):
            return None
        rows = [{name: value.get(name) for name in self._schema} for value in chunk.values]
        frame = pl.DataFrame(rows, self._schema, orient="row")
        indexes = np.array(chunk.positions, np.int64)
        return FrameChunk(indexes, frame, chunk.next_position, chunk.rejects, chunk.finished)


class CaseStream(PushedStream):
    """What is pushed to one stream of a case."""

    def __init__(self, name: str, stated: bool, fields: Mapping[str, str]) -> None:
        super().__init__(name)
        self._stated = stated
        self._columns = dict(fields)
        if not stated:
            self.poll_us = _POLL_US
            self._logs.clear()

    def open(self, partition: Any) -> PushedReader:
        log = self._logs[partition.name]
        if self._stated:
            return PushedReader(self, log)
        return _Columns(self, log, self._columns)
