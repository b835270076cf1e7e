"""Avro object container files: read from any record on, and written whole."""

from __future__ import annotations

import io
import json
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import xxhash

from millwheel.connect.formats.avro.blocks import (
    CODEC,
    SYNC_BYTES,
    BlockSpan,
    PlainWindow,
    read_head,
    read_span,
    unpacked,
)
from millwheel.connect.formats.avro.decode import converter
from millwheel.connect.formats.avro.encode import AvroWriting
from millwheel.connect.formats.avro.messages import read_call
from millwheel.connect.formats.avro.schema import (
    Schema,
    fastavro,
    load_schema,
    most_bytes,
    parse,
    plain_schema,
)
from millwheel.connect.formats.options import AvroOptions, Format
from millwheel.errors import SetupError

_READ_BYTES = 16 << 20  # of the records of one read, in a file
_MOST_EMPTY = 1_000_000  # records of a block that take no bytes: a few bytes could claim any number


class Unusable(NamedTuple):
    """A record of a sound file with a value that cannot be converted."""

    reason: str
    raw: Any


class Container:
    """The records of a file, decoded one by one; in place of some there may be an
    :class:`Unusable`. However large a block is, no more of it is in memory than a record may have.
    Raises SetupError when the file cannot be read."""

    def __init__(
        self,
        path: str,
        reader: Schema | None,
        decimals: str,
        file: BinaryIO | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        try:
            self._file: BinaryIO = file or open(path, "rb")  # noqa: SIM115 - closed by close
        except OSError as ex:
            raise SetupError(
                f"cannot read the input file {path}: {ex.strerror or ex}; check its path"
            ) from ex
        weakref.finalize(self, self._file.close)  # a reader may be dropped without being closed
        try:
            self._head = read_head(self._file)
            self._writer = parse(self._head.schema, "its schema")
            resolving = None if reader is None else parse(reader)
        except SetupError:
            raise
        except Exception as ex:  # a file may hold anything
            self._file.close()
            raise SetupError(
                f"cannot read {path} as an Avro container file: {ex}; check the format"
            ) from ex
        resolved = resolving or self._writer
        self._convert = converter(resolved.full, decimals, fields or {})
        same = resolving is None or resolving.bare == self._writer.bare
        self._resolve_to = None if same or resolving is None else resolving.bare
        self._read = read_call(self._writer.recursive or resolved.recursive)
        self._begin()

    def _begin(self) -> None:
        self.at = 0
        """The number of records before the next one. A record that is too large hides those behind
        it in its block, so it rises by more than the records returned."""
        self.ended = False
        self._next_at = self._head.end
        self._left = 0  # records of the block that are still to come
        self._window = PlainWindow(lambda most: b"", 0)

    def after(self, position: int, most: int) -> list[Any]:
        """Up to ``most`` records after the first ``position`` ones, fewer at the end of a block and
        where they are large; none at the end. Raises SetupError where the file is damaged."""
        if position != self.at:
            self._seek(position)
        if not self._left and not self.ended:
            self._open(self._span())
        records: list[Any] = []
        size = 0
        while len(records) < min(most, self._left) and size < _READ_BYTES:
            decoded = self._record()
            if decoded is None:
                records.append(Unusable(self._hides(self._left - len(records) - 1), None))
                self.at, self._left = self.at + self._left, 0
                return self._converted_all(records)
            records.append(decoded[0])
            size += decoded[1]
        self.at, self._left = self.at + len(records), self._left - len(records)
        return self._converted_all(records)

    def finished(self) -> bool:
        """True when nothing follows the records read."""
        while not self._left and not self.ended:
            self._open(self._span())
        return not self._left

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _seek(self, position: int) -> None:
        self._begin()
        while self.at < position:
            span = self._span()
            if span is None:
                raise SetupError(
                    f"the input file {self._path} has {self.at} records, but {position} were read"
                    " before: it was changed. Restore it, or start with a new root"
                )
            skipped = min(span.records, position - self.at)
            if skipped < span.records:
                self._open(span)
                for _ in range(skipped):
                    self._record()
                self._left -= skipped
            self.at += skipped

    def _span(self) -> BlockSpan | None:
        try:
            span = read_span(self._file, self._next_at, self._head)
        except Exception as ex:  # damage may raise anything
            raise self._damaged(ex) from ex
        self.ended = span is None
        self._next_at = self._next_at if span is None else span.end
        return span

    def _open(self, span: BlockSpan | None) -> None:
        if span is None:
            return
        self._left = span.records
        try:
            self._window = PlainWindow(unpacked(self._file, span, self._head.codec), self._most())
        except Exception as ex:
            raise self._damaged(ex) from ex

    def _most(self) -> int:
        """The most bytes of a record."""
        return most_bytes(self._writer.bare)

    def _record(self) -> tuple[Any, int] | None:
        """The next record of the block, and its bytes; None for one that is larger than a record
        may be."""
        try:
            decoded = self._window.decoded(self._one)
        except Exception as ex:
            raise self._damaged(ex) from ex
        if decoded is not None and not decoded[1] and self._left > _MOST_EMPTY:
            raise SetupError(
                f"the Avro file {self._path} has {self._left} records without any bytes; restore it"
            )
        return decoded

    def _hides(self, behind: int) -> str:
        others = f", and the {behind:,} records behind it in its block with it" if behind else ""
        return (
            f"the record has more than {self._most() >> 10:,} KiB, unpacked: it is left out{others}"
        )

    def _converted_all(self, records: list[Any]) -> list[Any]:
        return records if self._convert is None else list(map(self._converted, records))

    def _one(self, data: Any) -> Any:
        at = data.tell()
        try:
            return self._read(data, self._writer.bare, self._resolve_to)
        except UnicodeDecodeError as ex:
            data.seek(at)  # the next record is behind this one
            read = self._read(
                data, self._writer.bare, self._resolve_to, handle_unicode_errors="replace"
            )
            return Unusable(f"a text is not UTF-8: {ex.reason}", read)

    def _converted(self, value: Any) -> Any:
        if self._convert is None or type(value) is Unusable:
            return value
        try:
            return self._convert(value)
        except Exception as ex:  # a value may be outside the range of its plain type
            return Unusable(str(ex), value)

    def _damaged(self, ex: Exception) -> SetupError:
        return SetupError(
            f"the Avro file {self._path} cannot be read after record {self.at}:"
            f" {type(ex).__name__}: {ex}; restore it"
        )


class ContainerRows:
    """Encodes rows as a file."""

    def __init__(self, schema: Schema, strict: bool) -> None:
        self._parsed = parse(schema)
        self._writing = AvroWriting(self._parsed.full, strict)
        self._write = fastavro().schemaless_writer
        text = json.dumps(plain_schema(self._parsed.full)).encode()
        self._sync = xxhash.xxh3_128_digest(text)  # the same rows give the same file
        self._meta = {"avro.schema": text, "avro.codec": CODEC.encode()}

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
    sync = new[-SYNC_BYTES:]
    head = new[: new.index(sync) + SYNC_BYTES]
    return old + new[len(head) :] if old.startswith(head) else None


def avro_rows(form: Format, folder: str) -> ContainerRows | None:
    """The encoder of a sink's rows; None unless the format is Avro. Raises ValueError for an
    invalid schema."""
    options = form.options
    if not isinstance(options, AvroOptions) or options.schema is None:
        return None
    return ContainerRows(load_schema(options.schema, folder), options.unknown_fields == "refuse")


def _deflated(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)  # Fixed: Avro's deflate has no header
    return packing.compress(data) + packing.flush()


_MAGIC = b"Obj\x01"
_SYNC: dict[str, Any] = {"type": "fixed", "name": "Sync", "size": SYNC_BYTES}
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
