"""Avro container files. The position of a record is its number in the file, from 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec
import numpy as np

from millwheel.connect.formats.avro.containers import Container, Unusable
from millwheel.connect.formats.avro.schema import Schema
from millwheel.connect.sources.base import Chunk, FrameChunk, Reader, Reject
from millwheel.core.columns.declared_fields import FieldTypes, frame_of

_RECORD_BYTES = 200  # of a record: sizes the first read
_RAW_BYTES = 65_536  # kept of a rejected record
_LEAST = 1_000  # records of a read, however large they are


class AvroReader(Reader):
    """Reads one file, from ``path`` or from ``file``. docs/formats.md describes the values;
    ``reader`` is a schema to which they are resolved."""

    def __init__(
        self,
        path: str,
        reader: Schema | None,
        decimals: str,
        schema: type | None,
        fields: Mapping[str, str],
        file: BinaryIO | None = None,
    ) -> None:
        self._container = Container(path, reader, decimals, file, fields)
        self._schema = schema
        self._fields = dict(fields)
        self._types = FieldTypes(fields)

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        records = self._container.after(position, max_records)
        end = self._container.at
        positions = list(range(position + 1, position + len(records) + 1))
        values, problems = self._values(records)
        rejects = [
            Reject(positions[at], _shown(records[at]), reason)
            for at, reason in sorted(problems.items())
        ]
        if problems:
            good = [at for at in range(len(records)) if at not in problems]
            positions, values = [positions[at] for at in good], [values[at] for at in good]
        return Chunk(positions, values, end, rejects, self._container.finished())

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if not self._fields or self._schema is not None:
            return None
        chunk = self.read(position, max(max_bytes // _RECORD_BYTES, _LEAST))
        frame = frame_of(chunk.values, self._fields)
        positions = np.array(chunk.positions, np.int64)
        return FrameChunk(positions, frame, chunk.next_position, chunk.rejects, chunk.finished)

    def close(self) -> None:
        self._container.close()

    def _values(self, records: list[Any]) -> tuple[list[Any], dict[int, str]]:
        problems = {
            at: _problem(value) for at, value in enumerate(records) if type(value) is not dict
        }
        plain = [value if type(value) is dict else {} for value in records] if problems else records
        if self._schema is None:
            return plain, self._types.check(plain) | problems
        values: list[Any] = []
        for at, value in enumerate(records):
            if at in problems:
                values.append(None)
                continue
            try:
                values.append(msgspec.convert(value, self._schema))
            except msgspec.ValidationError as ex:
                values.append(None)
                problems[at] = str(ex)
        return values, problems


def _problem(value: Any) -> str:
    return (
        value.reason
        if type(value) is Unusable
        else "it is not a record: its schema is another type"
    )


def _shown(value: Any) -> str:
    return json.dumps(value.raw if type(value) is Unusable else value, default=repr)[:_RAW_BYTES]
