"""Fields in the names of folders, as Hive, Spark and the sink ``files`` write them:
``day=2026-01-31/``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from millwheel.connect.sources.base import Chunk, FrameChunk, Reader
from millwheel.core.columns.declared_fields import as_read, from_texts
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.model.records import Values
from millwheel.errors import RecordError, SetupError

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


def with_folder_fields(reader: Reader, path: str, fields: Mapping[str, str]) -> Reader:
    """The reader, with values of declared fields from the names of folders in the path. Raises
    SetupError for a folder whose value is not of the declared type."""
    values = _found(path, fields)
    return FolderFields(reader, values, fields) if values else reader


def _found(path: str, fields: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in path.split("/")[:-1]:
        name, equals, text = part.partition("=")
        if not equals or (name := unquote(name)) not in fields:
            continue
        text = unquote(text)
        try:
            values[name] = None if text == _NOTHING else from_texts(name, fields[name], [text])[0]
        except RecordError as ex:
            raise SetupError(
                f"the folder {part} of {path}: {ex}; declare another type, or rename the folder"
            ) from ex
    return values


class FolderFields(Reader):
    """A reader of one file; see :func:`with_folder_fields`."""

    def __init__(
        self, reader: Reader, values: Mapping[str, Any], fields: Mapping[str, str]
    ) -> None:
        self._reader = reader
        self._values = dict(values)
        kinds = as_read(fields)
        self._types = {name: dtype(kinds[name]) for name in values}

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = self._reader.read(position, max_records)
        for value in chunk.values:
            if type(value) is dict:
                value.update(self._values)
        if isinstance(chunk.values, Values):
            # the former list may have cached columns, without the new fields
            chunk.values = Values(chunk.values, chunk.values.kind, chunk.values.text_bytes)
        return chunk

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        chunk = self._reader.read_frame(position, max_bytes)
        if chunk is not None:
            columns = [
                pl.Series(name, [value], self._types[name]).new_from_index(0, len(chunk))
                for name, value in self._values.items()
            ]
            chunk.frame = chunk.frame.with_columns(columns)
        return chunk

    def skip(self, position: int) -> Chunk | None:
        return self._reader.skip(position)

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        self._reader.resume(notes)

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        return self._reader.take_columns(fields)

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        return self._reader.take_whole(fields)

    def stop_at(self, end: tuple[int, ...]) -> None:
        self._reader.stop_at(end)

    def reached(self, position: int) -> bool:
        return self._reader.reached(position)

    def tell_traces(self) -> None:
        self._reader.tell_traces()

    def close(self) -> None:
        self._reader.close()
