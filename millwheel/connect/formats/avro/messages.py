"""Messages in Avro: each is one value, with the id of its schema in front where there is a
registry."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millwheel.connect.formats.avro.columns import avro_columns
from millwheel.connect.formats.avro.decode import Convert, converter
from millwheel.connect.formats.avro.encode import AvroWriting
from millwheel.connect.formats.avro.schema import Parsed, Schema, fastavro, most_bytes, parse, whole
from millwheel.connect.formats.base import Decoding, MessageDecoder, MessageEncoder, checked
from millwheel.connect.formats.registry import HEADER_BYTES, Registration, Registry, header, split
from millwheel.core.columns.declared_fields import FieldTypes, as_read, with_times
from millwheel.errors import RecordError

if TYPE_CHECKING:
    import polars as pl


class AvroMessages(MessageDecoder):
    """``reader`` is the schema to which values are resolved; None: they keep the writer's schema.
    Without a registry all messages were written with ``reader``."""

    def __init__(
        self,
        reader: Schema | None,
        registry: Registry | None = None,
        decimals: str = "float",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self._schema = reader
        self._reader = None if reader is None else parse(reader)
        self._registry = registry
        self._decimals = decimals
        self._fields = dict(fields or {})
        self._types = FieldTypes(self._fields)
        self._schemas: dict[int, _Written] = {}
        if registry is None:
            if self._reader is None:
                raise ValueError(
                    "avro needs 'schema', a file beside the pipeline, or 'registry', where messages"
                    " name theirs"
                )
            self._only = _Written(self._reader, None, decimals, self._fields)

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        if self._registry is None:
            return checked(self._only.decode(messages), self._types)
        return checked(self._by_id(messages), self._types)

    def frame(self, messages: Sequence[bytes]) -> pl.DataFrame | None:
        if self._registry is None:
            return self._only.frame(messages)
        headers = {message[:HEADER_BYTES] for message in messages}
        if len(headers) != 1:
            return None
        try:
            return self._written(split(headers.pop())).frame(messages, HEADER_BYTES)
        except (RecordError, ValueError):
            return None

    def with_types(self, fields: Mapping[str, str]) -> AvroMessages:
        return AvroMessages(self._schema, self._registry, self._decimals, fields)

    def _by_id(self, messages: Sequence[bytes]) -> Decoding:
        groups: dict[int, list[int]] = defaultdict(list)
        wrong: dict[int, str] = {}
        for index, message in enumerate(messages):
            try:
                groups[split(message)].append(index)
            except RecordError as ex:
                wrong[index] = str(ex)
        by_index: dict[int, Any] = {}
        for number, indexes in groups.items():
            try:
                written = self._written(number)
            except (RecordError, ValueError) as ex:
                wrong |= dict.fromkeys(indexes, str(ex))
                continue
            part = written.decode([messages[index] for index in indexes], HEADER_BYTES)
            by_index |= zip([indexes[at] for at in part.indexes], part.records, strict=True)
            wrong |= {indexes[at]: reason for at, reason in part.wrong.items()}
        good = sorted(by_index)
        return Decoding(good, [by_index[index] for index in good], wrong)

    def _written(self, number: int) -> _Written:
        written = self._schemas.get(number)
        if written is None:
            assert self._registry is not None
            writer = parse_registered(self._registry, number)
            written = self._schemas[number] = _Written(
                writer, self._reader, self._decimals, self._fields
            )
        return written


def parse_registered(registry: Registry, number: int) -> Parsed:
    """The schema of an id. Raises RecordError if it is not an Avro schema, ExhaustedError while the
    registry does not answer."""
    registered = registry.schema(number)
    if registered.kind != "AVRO":
        raise RecordError(f"its schema, id {number}, is {registered.kind}, not AVRO")
    try:
        texts = [json.loads(text) for text in (*registered.references, registered.text)]
        return parse(whole(texts), f"the schema with the id {number}")
    except ValueError as ex:
        raise RecordError(str(ex)) from ex


class _Written:
    """Messages written with one schema."""

    def __init__(
        self, writer: Parsed, reader: Parsed | None, decimals: str, fields: Mapping[str, str]
    ) -> None:
        self._writer = writer.bare
        self._reader = None if reader is None or reader.bare == writer.bare else reader.bare
        self._convert: Convert | None = converter((reader or writer).full, decimals, fields)
        self._columns = (
            avro_columns(writer.bare, writer.full, as_read(fields))
            if self._reader is None
            else None
        )
        self._fields = fields
        self._read = read_call(writer.recursive or (reader is not None and reader.recursive))
        self._most = most_bytes(writer.bare)

    def frame(self, messages: Sequence[bytes], skip: int = 0) -> pl.DataFrame | None:
        """See :meth:`AvroMessages.frame`."""
        frame = None if self._columns is None else self._columns.frame(messages, skip)
        return None if frame is None else with_times(frame, self._fields)

    def decode(self, messages: Sequence[bytes], skip: int = 0) -> Decoding:
        """Decode messages; the first ``skip`` bytes of each are skipped."""
        decoding = Decoding([], [], {})
        read, writer, reader, convert = self._read, self._writer, self._reader, self._convert
        for index, message in enumerate(messages):
            data = io.BytesIO(message)
            if skip:
                data.seek(skip)
            try:
                if len(message) > self._most:
                    raise RecordError(
                        f"it has {len(message):,} bytes, more than {self._most:,} of its schema"
                    )
                value = read(data, writer, reader)
                if data.tell() != len(message):
                    raise RecordError(f"{len(message) - data.tell()} bytes are left over")
                decoding.records.append(value if convert is None else convert(value))
            except Exception as ex:  # fastavro raises many kinds for invalid bytes
                decoding.wrong[index] = f"it does not match its Avro schema: {_reason(ex)}"
                continue
            decoding.indexes.append(index)
        return decoding


def _reason(ex: Exception) -> str:
    if isinstance(ex, RecordError):
        return str(ex)
    if isinstance(ex, EOFError):
        return "it ends too soon"
    if isinstance(ex, RecursionError):
        return "it nests too deeply"
    return f"{type(ex).__name__}: {ex}"[:300]


def read_call(recursive: bool) -> Callable[..., Any]:
    """fastavro's reader in C; for recursive types the one in Python, because the one in C has no
    limit of depth and damaged bytes would crash the process."""
    if not recursive:
        call: Callable[..., Any] = fastavro().schemaless_reader
        return call
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


class AvroEncoder(MessageEncoder):
    """Rows in one schema."""

    def __init__(
        self, schema: Schema, strict: bool = True, registration: Registration | None = None
    ) -> None:
        parsed = parse(schema)
        self._schema = parsed.bare
        self._writing = AvroWriting(parsed.full, strict)
        self._write = fastavro().schemaless_writer
        self._registration = registration

    def encode(self, row: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        self._write(out, self._schema, self._writing.bare(row))
        return out.getvalue()

    def header(self) -> bytes:
        return b"" if self._registration is None else header(self._registration.number())

    def check(self) -> None:
        if self._registration is not None:
            self._registration.check()
