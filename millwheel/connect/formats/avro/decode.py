"""Values as fastavro reads them (without logical types) to plain values.

Times and timestamps become µs, dates ISO text, decimals floats or text, UUIDs text, as in Parquet
files. A converter is made once for a schema; None stands for one that changes nothing, so most
schemas cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

from millwheel.connect.formats.avro.schema import Schema, inner_types, names_of
from millwheel.core.instants.decimals import is_decimal
from millwheel.core.instants.numbers import day_text, scaled_us
from millwheel.errors import RecordError

Convert = Callable[[Any], Any]
_NO_FIELDS: Mapping[str, str] = MappingProxyType({})
_TYPE_OF = {
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("string", "enum"), str),
    **dict.fromkeys(("bytes", "fixed"), bytes),
    **dict.fromkeys(("record", "error", "map"), dict),
    "boolean": bool,
    "array": list,
}


def converter(
    schema: Schema, decimals: str = "float", fields: Mapping[str, str] = _NO_FIELDS
) -> Convert | None:
    """The converter from bare values of a parsed schema to plain ones; None when they are the same.
    Decimals of ``fields`` that are declared as such become text, even where others do not. Raises
    ValueError for a union whose branches cannot be distinguished."""
    convert = _Converters(names_of(schema), decimals).of(schema)
    own = [name for name, kind in fields.items() if is_decimal(kind)]
    if not own or not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        return convert
    as_text = _Converters(names_of(schema), "text")
    types = {field["name"]: field["type"] for field in schema["fields"]}
    exact = {name: made for name in own if name in types and (made := as_text.of(types[name]))}
    return _with_texts(convert or _same, exact) if exact else convert


def _with_texts(convert: Convert, exact: Mapping[str, Convert]) -> Convert:
    def run(value: dict[str, Any]) -> Any:
        texts = {}
        for name, text in exact.items():
            try:
                texts[name] = text(value[name])
            except ValueError as ex:  # more digits than Python writes
                raise RecordError(f"field {name!r}: {ex}") from ex
        record = convert(value)
        record.update(texts)
        return record

    return run


class _Converters:
    def __init__(self, names: Mapping[str, Schema], decimals: str) -> None:
        self._names = names
        self._text = decimals == "text"
        self._made: dict[str, Convert | None] = {}
        self._needed: dict[str, bool] = {}

    def of(self, schema: Schema) -> Convert | None:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self.of(self._names[schema]) if schema in self._names else None
        if schema["type"] in ("record", "error"):
            return self._record(schema)
        if schema["type"] == "array":
            item = self.of(schema["items"])
            return None if item is None else lambda value: [item(each) for each in value]
        if schema["type"] == "map":
            inner = self.of(schema["values"])
            return (
                None
                if inner is None
                else lambda value: {name: inner(each) for name, each in value.items()}
            )
        return self._logical(schema)

    def _record(self, schema: Mapping[str, Any]) -> Convert | None:
        name = schema["name"]
        if name in self._made:
            # A recursive record: its converter is looked up when it is called.
            return self._made[name] or (lambda value: (self._made[name] or _same)(value))
        if not self._needs(schema, set()):
            return None
        self._made[name] = None
        parts = [(field["name"], self.of(field["type"])) for field in schema["fields"]]
        busy = [(field, convert) for field, convert in parts if convert is not None]

        def convert_fields(value: dict[str, Any]) -> dict[str, Any]:
            for field, convert in busy:
                try:
                    value[field] = convert(value[field])
                except (RecordError, ValueError, ArithmeticError) as ex:
                    raise RecordError(f"field {field!r}: {ex}") from ex
            return value

        self._made[name] = convert_fields
        return convert_fields

    def _needs(self, schema: Schema, above: set[str]) -> bool:
        """Whether anything within is converted."""
        if isinstance(schema, list):
            return any(self._needs(branch, above) for branch in schema)
        if isinstance(schema, str):
            return (
                schema in self._names
                and schema not in above
                and self._needs(self._names[schema], above)
            )
        if schema["type"] in ("record", "error"):
            above = above | {schema["name"]}
        return (
            any(self._needs(inner, above) for inner in inner_types(schema))
            or self._logical(schema) is not None
        )

    def _union(self, branches: list[Schema]) -> Convert | None:
        converters = [(branch, self.of(branch)) for branch in branches]
        if all(convert is None for _, convert in converters):
            return None
        by_type: dict[type, Convert] = {}
        for branch, convert in converters:
            kind = _TYPE_OF.get(self._type_of(branch))
            if kind is None:
                continue
            if kind in by_type:
                raise ValueError(
                    f"a union has two branches whose values are both {kind.__name__}, one of them"
                    " with a logical type within; such values cannot be told apart"
                )
            by_type[kind] = convert or _same

        def convert_branch(value: Any) -> Any:
            return value if value is None else by_type[type(value)](value)

        return convert_branch

    def _type_of(self, schema: Schema) -> str:
        if isinstance(schema, str) and schema in self._names:
            schema = self._names[schema]
        kind: str = schema if isinstance(schema, str) else schema["type"]
        return kind

    def _logical(self, schema: Mapping[str, Any]) -> Convert | None:
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return (
                _decimal_text(schema.get("scale", 0))
                if self._text
                else _decimal_float(schema.get("scale", 0))
            )
        if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
            return _uuid
        return _WHOLE.get((kind, logical or ""))


def _same(value: Any) -> Any:
    return value


def _thousand(value: int) -> int:
    return scaled_us(value, 1_000)


def _thousandth(value: int) -> int:
    return scaled_us(value, 1, 1_000)


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value))


_WHOLE: dict[tuple[str, str], Convert] = {
    ("int", "date"): day_text,
    ("int", "time-millis"): _thousand,
    ("long", "timestamp-millis"): _thousand,
    ("long", "local-timestamp-millis"): _thousand,
    ("long", "timestamp-nanos"): _thousandth,
    ("long", "local-timestamp-nanos"): _thousandth,
}


def _decimal_float(scale: int) -> Convert:
    ten: int = 10**scale
    return lambda value: int.from_bytes(value, "big", signed=True) / ten


def _decimal_text(scale: int) -> Convert:
    def text(value: bytes) -> str:
        number = int.from_bytes(value, "big", signed=True)
        digits = tuple(map(int, str(abs(number))))
        return f"{Decimal((int(number < 0), digits, -scale)):f}"

    return text
