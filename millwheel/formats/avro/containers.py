"""Avro object container files: read from any record on, and written whole."""

from __future__ import annotations

import io
import json
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import xxhash

from millwheel.errors import SetupError
from millwheel.formats.avro.messages import read_call
from millwheel.formats.avro.reading import converter
from millwheel.formats.avro.schema import Schema, fastavro, load_schema, parse, plain_schema
from millwheel.formats.avro.writing import AvroWriting
from millwheel.formats.options import AvroOptions, Format

_CODEC = b"deflate"
"""The only codec, besides none, that each reader of Avro has."""


class Unusable(NamedTuple):
    """A record of a sound file that has a value which cannot be had."""

    reason: str
    raw: Any


class Container:
    """The records of a file; in place of some there may be an :class:`Unusable`. Raises SetupError when the file cannot
    be read."""

    def __init__(self, path: str, reader: Schema | None, decimals: str, file: BinaryIO | None = None) -> None:
        self._path = path
        try:
            self._file: BinaryIO = file or open(path, "rb")  # noqa: SIM115 - closed by close
        except OSError as ex:
            raise SetupError(f"cannot read the input file {path}: {ex.strerror or ex}; check its path") from ex
        weakref.finalize(self, self._file.close)  # a reader may be dropped without being closed
        try:
            blocks = fastavro().block_reader(self._file)
            self._writer = parse(blocks.writer_schema, "its schema")
            self._reader = None if reader is None else parse(reader)
        except SetupError:
            raise
        except Exception as ex:  # a file may hold anything
            self._file.close()
            raise SetupError(f"cannot read {path} as an Avro container file: {ex}; check the format") from ex
        resolved = self._reader or self._writer
        self._convert = converter(resolved.full, decimals)
        same = self._reader is None or self._reader.bare == self._writer.bare
        self._resolve_to = None if same or self._reader is None else self._reader.bare
        self._read = read_call(self._writer.recursive or resolved.recursive)
        self._at = 0
        self._blocks: Iterator[Any] = iter(blocks)
        self._left: list[Any] = []
        self.ended = False

    def after(self, position: int, most: int) -> list[Any]:
        """Up to ``most`` records after the first ``position`` ones, fewer at the end of a block; none at the end.
        Raises SetupError where the file is damaged."""
        if position != self._at:
            self._seek(position)
        if not self._left and not self.ended:
            self._next_block()
        found, self._left = self._left[:most], self._left[most:]
        self._at += len(found)
        return found

    def finished(self) -> bool:
        """True when nothing follows what was read."""
        while not self._left and not self.ended:
            self._next_block()
        return not self._left

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _seek(self, position: int) -> None:
        self._file.seek(0)
        self._blocks, self._left, self._at, self.ended = iter(fastavro().block_reader(self._file)), [], 0, False
        while self._at < position:
            block = self._block()
            if block is None:
                raise SetupError(
                    f"the input file {self._path} has {self._at} records, but {position} were read before: it was "
                    "changed. Restore it, or start with a new root"
                )
            skipped = min(block.num_records, position - self._at)
            if skipped < block.num_records:
                self._left = self._records(block)[skipped:]
            self._at += skipped

    def _next_block(self) -> None:
        block = self._block()
        self._left = [] if block is None else self._records(block)

    def _block(self) -> Any:
        try:
            block = next(self._blocks, None)
        except Exception as ex:  # damage may raise anything
            raise self._damaged(ex) from ex
        self.ended = block is None
        return block

    def _records(self, block: Any) -> list[Any]:
        data = block.bytes_
        try:
            data.seek(0)
            found = [self._one(data) for _ in range(block.num_records)]
        except Exception as ex:
            raise self._damaged(ex) from ex
        return found if self._convert is None else list(map(self._converted, found))

    def _one(self, data: Any) -> Any:
        at = data.tell()
        try:
            return self._read(data, self._writer.bare, self._resolve_to)
        except UnicodeDecodeError as ex:
            data.seek(at)  # the next record is behind this one
            read = self._read(data, self._writer.bare, self._resolve_to, handle_unicode_errors="replace")
            return Unusable(f"a text is not UTF-8: {ex.reason}", read)

    def _converted(self, value: Any) -> Any:
        if self._convert is None or type(value) is Unusable:
            return value
        try:
            return self._convert(value)
        except Exception as ex:  # a value may be beyond all that its plain type can have
            return Unusable(str(ex), value)

    def _damaged(self, ex: Exception) -> SetupError:
        return SetupError(
            f"the Avro file {self._path} cannot be read after record {self._at}: {type(ex).__name__}: {ex}; restore it"
        )


class ContainerRows:
    """Encodes rows as a file."""

    def __init__(self, schema: Schema, strict: bool) -> None:
        self._parsed = parse(schema)
        self._writing = AvroWriting(self._parsed.full, strict)
        self._write = fastavro().schemaless_writer
        text = json.dumps(plain_schema(self._parsed.full)).encode()
        self._sync = xxhash.xxh3_128_digest(text)  # the same rows give the same file
        self._meta = {"avro.schema": text, "avro.codec": _CODEC}

    def check(self, row: Mapping[str, Any]) -> None:
        """Raises RecordError, with the field, for a row that does not fit the schema."""
        self._writing.bare(row)

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """A container file. Raises RecordError for a row that does not fit."""
        out = io.BytesIO()
        for row in rows:
            self._write(out, self._parsed.bare, self._writing.bare(row))
        packed = _deflated(out.getvalue())
        file = io.BytesIO()
        self._write(file, _HEADER, {"magic": _MAGIC, "meta": self._meta, "sync": self._sync})
        if rows:
            self._write(file, _BLOCK, {"count": len(rows), "data": packed, "sync": self._sync})
        return file.getvalue()


def joined(old: bytes, new: bytes) -> bytes | None:
    """One file with the rows of both; None when their schemas differ."""
    sync = new[-_SYNC_BYTES:]
    head = new[: new.index(sync) + _SYNC_BYTES]
    return old + new[len(head) :] if old.startswith(head) else None


def avro_rows(form: Format, folder: str) -> ContainerRows | None:
    """The encoder of a sink's rows; None unless the format is Avro. Raises ValueError for an invalid schema."""
    options = form.options
    if not isinstance(options, AvroOptions) or options.schema is None:
        return None
    return ContainerRows(load_schema(options.schema, folder), options.unknown_fields == "refuse")


def _deflated(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)  # Fixed: Avro's deflate has no header
    return packing.compress(data) + packing.flush()


_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16  # Fixed: of Avro files
_SYNC: dict[str, Any] = {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}
_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": _SYNC},
    ],
}
_BLOCK: dict[str, Any] = {
    "type": "record",
    "name": "Block",
    "fields": [
        {"name": "count", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "sync", "type": _SYNC},
    ],
}
"""Fixed: the parts of a file, as Avro values."""
