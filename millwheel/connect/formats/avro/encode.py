"""Converts plain values to Avro values: checks them against the schema, and names the field's path
in errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from millwheel.connect.formats.avro.schema import Schema, names_of
from millwheel.core.instants.texts import text_day
from millwheel.errors import RecordError

Write = Callable[[Any, str], Any]
"""Converts (plain value, its path) to the value that fastavro writes for a bare schema. Raises
RecordError."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MOST_DIGITS = 2_000  # of a decimal that is examined at all
_INT32, _INT64 = 2**31, 2**63  # Fixed: the ranges of an int and a long
_BARE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroWriting:
    """Rows of one parsed schema with logical types. ``strict`` refuses fields that the schema does
    not have."""

    def __init__(self, schema: Schema, strict: bool) -> None:
        self._names = names_of(schema)
        self._strict = strict
        self._made: dict[str, Write] = {}
        self._of = self._writer(schema)

    def bare(self, value: Any) -> Any:
        """A value as fastavro writes it. Raises RecordError, with the path, for one that does not
        fit."""
        try:
            return self._of(value, "")
        except RecursionError:
            raise RecordError("it nests too deeply") from None

    def _writer(self, schema: Schema) -> Write:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._named(schema) if schema in self._names else _PRIMITIVE[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            self._made[schema["name"]] = self._record(schema)
            return self._named(schema["name"])
        if kind == "array":
            return self._array(self._writer(schema["items"]))
        if kind == "map":
            return self._map(self._writer(schema["values"]))
        if kind == "enum":
            return _enum(schema["name"], schema["symbols"])
        return _logical(schema)

    def _named(self, name: str) -> Write:
        schema = self._names[name]
        if schema["type"] not in ("record", "error"):
            return self._writer(schema)
        return lambda value, path: self._made[name](value, path)

    def _record(self, schema: Mapping[str, Any]) -> Write:
        fields = [
            (each["name"], self._writer(each["type"]), "default" in each)
            for each in schema["fields"]
        ]
        names = frozenset(name for name, _, _ in fields)

        def write(value: Any, path: str) -> Any:
            if not isinstance(value, Mapping):
                raise _wrong(value, path, f"a record {schema['name']}")
            record = {}
            for name, of, has_default in fields:
                if name in value or not has_default:
                    record[name] = of(value.get(name), f"{path}.{name}" if path else name)
            if self._strict and not value.keys() <= names:
                extra = min(map(str, value.keys() - names))
                raise RecordError(
                    f"field {f'{path}.{extra}' if path else extra!r} is not in the Avro schema; add"
                    " it there, or write unknown_fields: ignore"
                )
            return record

        return write

    @staticmethod
    def _array(of: Write) -> Write:
        def write(value: Any, path: str) -> Any:
            if not isinstance(value, (list, tuple)):
                raise _wrong(value, path, "an array")
            return [of(each, f"{path}[{index}]") for index, each in enumerate(value)]

        return write

    @staticmethod
    def _map(of: Write) -> Write:
        def write(value: Any, path: str) -> Any:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                raise _wrong(value, path, "a map with names that are text")
            return {name: of(each, f"{path}.{name}") for name, each in value.items()}

        return write

    def _union(self, branches: list[Schema]) -> Write:
        writers = [
            (self._tag(branch), self._writer(branch)) for branch in branches if branch != "null"
        ]
        nullable = len(writers) < len(branches)

        def write(value: Any, path: str) -> Any:
            if value is None and nullable:
                return None
            problem: RecordError | None = None
            for tag, of in writers:
                try:
                    written = of(value, path)
                except RecordError as ex:
                    problem = ex
                    continue
                return written if tag is None else (tag, written)
            if problem is not None and len(writers) == 1:
                raise problem
            raise _wrong(value, path, "one of several types, none of which it is")

        return write

    def _tag(self, branch: Schema) -> str | None:
        """The tag that names a value's branch to fastavro; None for arrays, maps and null, which it
        recognizes."""
        kind = branch if isinstance(branch, str) else branch["type"]
        if isinstance(branch, str) and branch in self._names:
            return branch
        if kind in ("record", "error", "enum", "fixed"):
            return str(branch["name"])
        return kind if kind in _BARE and kind != "null" else None


def _wrong(value: Any, path: str, expected: str) -> RecordError:
    if value is None:
        return RecordError(
            f"field {path!r} is missing or None, but the Avro schema requires {expected}"
        )
    description = f"{type(value).__name__} {value!r}"[:80]
    return RecordError(f"field {path!r} is {description}, but the Avro schema requires {expected}")


def _null(value: Any, path: str) -> Any:
    if value is not None:
        raise _wrong(value, path, "null")


def _boolean(value: Any, path: str) -> Any:
    if type(value) is not bool:
        raise _wrong(value, path, "a boolean")
    return value


def _whole(limit: int, name: str) -> Write:
    def write(value: Any, path: str) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise _wrong(value, path, name)
        return value

    return write


def _number(value: Any, path: str) -> Any:
    if type(value) not in (int, float):
        raise _wrong(value, path, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _wrong(value, path, "a number in the range of floats") from None


def _single(value: Any, path: str) -> Any:
    number = _number(value, path)
    if abs(number) > 3.4028235677973366e38 and abs(number) != float("inf"):
        raise _wrong(value, path, "a number in the range of single floats")
    return number


def _bytes(value: Any, path: str) -> Any:
    if not isinstance(value, bytes):
        raise _wrong(value, path, "bytes")
    return value


def _string(value: Any, path: str) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if not isinstance(value, str):
        raise _wrong(value, path, "a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(value, path, "a string of Unicode") from None
    return value


_LONG = _whole(_INT64, "a long")
_INT = _whole(_INT32, "an int")
_PRIMITIVE: dict[str, Write] = {
    "null": _null,
    "boolean": _boolean,
    "int": _INT,
    "long": _LONG,
    "float": _single,
    "double": _number,
    "bytes": _bytes,
    "string": _string,
}


def _enum(name: str, symbols: list[str]) -> Write:
    def write(value: Any, path: str) -> Any:
        if value not in symbols:
            raise _wrong(value, path, f"one of {', '.join(symbols)[:200]} ({name})")
        return value

    return write


def _fixed(size: int) -> Write:
    def write(value: Any, path: str) -> Any:
        if not isinstance(value, bytes) or len(value) != size:
            raise _wrong(value, path, f"{size} bytes")
        return value

    return write


def _logical(schema: Mapping[str, Any]) -> Write:
    kind, logical = schema["type"], schema.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema["precision"], schema.get("scale", 0), schema.get("size"))
    if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
        return _uuid
    if kind == "fixed":
        return _fixed(schema["size"])
    factor = _SCALED.get((kind, logical))
    if factor is not None:
        return _scaled(_PRIMITIVE[kind], factor)
    return _date if (kind, logical) == ("int", "date") else _PRIMITIVE[kind]


_SCALED: dict[tuple[str, str], tuple[int, int]] = {
    ("int", "time-millis"): (1, 1_000),
    ("long", "timestamp-millis"): (1, 1_000),
    ("long", "local-timestamp-millis"): (1, 1_000),
    ("long", "timestamp-nanos"): (1_000, 1),
    ("long", "local-timestamp-nanos"): (1_000, 1),
}
"""Factor and divisor of a time in µs; fractions of a unit are cut off."""


def _scaled(of: Write, factor: tuple[int, int]) -> Write:
    times, by = factor
    return lambda value, path: of(_LONG(value, path) * times // by, path)


def _date(value: Any, path: str) -> Any:
    try:
        day = type(value) is date
        return value.toordinal() - _EPOCH_DAY if day else text_day(value)
    except (TypeError, RecordError):
        raise _wrong(value, path, "a date, such as 2026-01-31") from None


def _uuid(value: Any, path: str) -> Any:
    try:
        return UUID(value).bytes
    except (AttributeError, TypeError, ValueError):
        raise _wrong(value, path, "a UUID") from None


def _decimal(precision: int, scale: int, size: int | None) -> Write:
    expected = f"a decimal with {precision} digits, {scale} of them after the point"

    def write(value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
            raise _wrong(value, path, expected)
        number = _unscaled(value, scale)
        if number is None or abs(number) >= 10**precision:
            raise _wrong(value, path, expected)
        return number.to_bytes(size or (number.bit_length() + 8) // 8, "big", signed=True)

    return write


def _unscaled(value: int | float | str | Decimal, scale: int) -> int | None:
    """Floats are rounded to the scale; text and numbers that have more digits do not fit."""
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
        if not exact.is_finite():
            return None
        sign, digits, exponent = exact.as_tuple()
    except (InvalidOperation, ValueError):
        return None
    if abs(int(exponent)) > _MOST_DIGITS or len(digits) > _MOST_DIGITS:
        return None
    number = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    shift = int(exponent) + scale
    if shift >= 0:
        return number * int(10**shift)
    unit = int(10**-shift)
    whole, rest = divmod(number, unit)
    if rest and not isinstance(value, float):
        return None
    return whole + int(2 * rest >= unit)
