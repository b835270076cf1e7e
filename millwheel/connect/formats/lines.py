"""Messages in JSON, CSV, text and bytes."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millwheel.connect.formats.base import (
    Decoding,
    MessageDecoder,
    MessageEncoder,
    checked,
    decode_one_by_one,
)
from millwheel.connect.formats.options import CsvOptions, TextOptions
from millwheel.connect.formats.row_lines import cell, json_lines, rows_in, safe_cell, written
from millwheel.connect.sources.files.json_lines import DeclaredJsonLines, JsonLines
from millwheel.connect.sources.files.lines import Block
from millwheel.core.columns.declared_fields import FieldTypes, from_texts
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import RecordError


class JsonMessages(MessageDecoder):
    """JSON objects, one in each message: decoded together if all are valid, else one by one, into
    the type ``schema``. ``exact``: fractions come as :class:`~decimal.Decimal`, as they also do
    where declared ``fields`` are decimals."""

    def __init__(
        self,
        schema: type | None = None,
        fields: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> None:
        self._lines = JsonLines(schema, FieldTypes(fields or {}), exact)

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)) + 1)
        decoded = self._lines.decode(Block(b"\n".join(messages) + b"\n", ends, 0))
        if decoded.positions is None:
            return Decoding(list(range(len(messages))), decoded.values, {})
        indexes = {end: index for index, end in enumerate(ends.tolist())}
        wrong = {indexes[reject.position]: reject.reason for reject in decoded.rejects}
        good = [indexes[position] for position in decoded.positions]
        blank = set(range(len(messages))) - wrong.keys() - set(good)
        return Decoding(good, decoded.values, wrong | dict.fromkeys(blank, "the value is empty"))


class WholeJsonMessages(JsonMessages):
    """JSON objects with the fields that ``schema`` has and no others; if a message has others, the
    first of the messages is reported as wrong, and none is decoded."""

    def __init__(self, schema: type) -> None:
        self._lines = DeclaredJsonLines(schema, FieldTypes({}))


class TextMessages(MessageDecoder):
    """Each message is ``{field: …}``: text, or bytes when it is ``raw``."""

    def __init__(self, options: TextOptions, raw: bool) -> None:
        self._field = options.field
        self._raw = raw

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        return decode_one_by_one(messages, self._one)

    def _one(self, message: bytes) -> dict[str, Any]:
        return {self._field: message if self._raw else message.decode()}


class CsvMessages(MessageDecoder):
    """One CSV record in each message, with fields named by ``columns``; values are text except in
    declared fields."""

    def __init__(self, options: CsvOptions, fields: Mapping[str, str] | None = None) -> None:
        need_columns(options)
        self._columns = options.columns
        self._delimiter = options.delimiter
        self._fields = {
            name: kind for name, kind in (fields or {}).items() if name in options.columns
        }
        self._types = FieldTypes(fields or {})

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        records = self._together(messages)
        if records is not None:
            return Decoding(list(range(len(messages))), records, {})
        return checked(decode_one_by_one(messages, self._one, (*DAMAGE, csv.Error)), self._types)

    def _together(self, messages: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Decode all messages, a column at a time; None when one is invalid, or may have more than
        one line."""
        data = b"".join(messages)
        if any(mark in data for mark in (b'"', b"\n", b"\r", b"\0")):
            return None
        try:
            rows = rows_in([message.decode() for message in messages], self._delimiter)
            if len(rows) != len(messages) or any(len(row) != len(self._columns) for row in rows):
                return None
            columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
            for at, name in enumerate(self._columns):
                columns[at] = from_texts(name, self._fields.get(name, "str"), columns[at])
        except (RecordError, csv.Error, *DAMAGE):
            return None
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]

    def _one(self, message: bytes) -> dict[str, Any]:
        if b"\0" in message:
            raise RecordError("the record has a zero byte")
        rows = rows_in([message.decode()], self._delimiter)
        if len(rows) != 1 or len(rows[0]) != len(self._columns):
            count = len(rows[0]) if len(rows) == 1 else len(rows)
            what = "fields" if len(rows) == 1 else "records"
            raise RecordError(f"{count} {what} where there are {len(self._columns)} columns")
        record: dict[str, Any] = dict(zip(self._columns, rows[0], strict=True))
        for name, kind in self._fields.items():
            if kind != "str":
                record[name] = from_texts(name, kind, [record[name]])[0]
        return record


class JsonRows(MessageEncoder):
    """One JSON object in each message."""

    def encode(self, row: Mapping[str, Any]) -> bytes:
        return json_lines([row])[:-1]


class TextRows(MessageEncoder):
    """The value of one field."""

    def __init__(self, options: TextOptions, raw: bool) -> None:
        self._field = options.field
        self._raw = raw

    def encode(self, row: Mapping[str, Any]) -> bytes:
        value = row.get(self._field)
        if self._raw and isinstance(value, bytes):
            return value
        if self._raw or not isinstance(value, str):
            expected = "bytes" if self._raw else "text"
            raise RecordError(
                f"field {self._field!r} is {type(value).__name__}, and only {expected} can be a"
                " message"
            )
        try:
            return value.encode()
        except UnicodeEncodeError as ex:
            raise RecordError(f"field {self._field!r} is not a text in UTF-8: {ex.reason}") from ex


class CsvMessageRows(MessageEncoder):
    """One CSV record in each message, without a line's end."""

    def __init__(self, options: CsvOptions) -> None:
        need_columns(options)
        self._columns = options.columns
        self._delimiter = options.delimiter
        self._cell = safe_cell if options.spreadsheet_safe else cell

    def encode(self, row: Mapping[str, Any]) -> bytes:
        [line] = written([[self._cell(row.get(name)) for name in self._columns]], self._delimiter)
        return line.encode("utf-8", "replace")


def need_columns(options: CsvOptions) -> None:
    """Raises ValueError unless columns are named, because a message has no header."""
    if not options.columns:
        raise ValueError(
            "option 'format': csv needs 'columns' for messages; write for example columns: [id,"
            " amount]"
        )
