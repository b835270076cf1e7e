"""Plain values to Avro and back, and the field of what does not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.errors import RecordError


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "at", "type": logical("long", "timestamp-millis")}],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "n", "type": "int"}]}
FIXED16 = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
MANY: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", True),
    ("int", -(2**31)),
    ("long", 2**63 - 1),
    ("float", 1.5),
    ("double", 1e300),
    ("bytes", b"\xff"),
    ("string", "é\0"),
    (logical("int", "date"), "2026-02-28"),
    (logical("int", "date"), "1900-01-01"),
    (logical("int", "time-millis"), 3_000),
    (logical("long", "time-micros"), 3),
    (logical("long", "timestamp-millis"), -5_000),
    (logical("long", "timestamp-micros"), 1_700_000_000_000_001),
    (logical("long", "local-timestamp-millis"), 5_000),
    (logical("long", "timestamp-nanos"), 5),
    (logical("bytes", "decimal", precision=10, scale=2), -12.34),
    (
        {
            "type": "fixed",
            "name": "D",
            "size": 8,
            "logicalType": "decimal",
            "precision": 10,
            "scale": 2,
        },
        99.99,
    ),
    (logical("string", "uuid"), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    (FIXED16, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ({"type": "array", "items": INNER}, [{"at": 1_000}, {"at": 2_000}]),
    ({"type": "map", "values": logical("int", "date")}, {"a": "2026-01-01"}),
    (["null", INNER], {"at": 7_000}),
    (["null", INNER], None),
    ([INNER, "string"], "text"),
    (["string", logical("long", "timestamp-millis")], 7_000),
    ([{"type": "array", "items": "long"}, {"type": "map", "values": "long"}], {"a": 1}),
    ([OTHER, "null", "boolean", "double"], {"n": 1}),
]


@pytest.mark.parametrize(("schema", "value"), MANY)
def test_values_come_back_as_they_were(schema: Any, value: Any) -> None:
    whole = record(v=schema)
    assert AvroMessages(whole).decode([AvroEncoder(whole).encode({"v": value})]) == (
        [0],
        [{"v": value}],
        {},
    )


def test_records_within_themselves_are_written_and_read() -> None:
    tree = record(at=logical("int", "date"), next=["null", "R"])
    value = {"at": "2026-01-01", "next": {"at": "2026-01-02", "next": None}}
    assert AvroMessages(tree).decode([AvroEncoder(tree).encode(value)]).records == [value]


def test_fields_with_defaults_may_be_missing_and_others_may_be_ignored() -> None:
    schema = record(a="int")
    schema["fields"].append({"name": "b", "type": "string", "default": "x"})
    assert AvroMessages(schema).decode(
        [AvroEncoder(schema, False).encode({"a": 1, "c": 2})]
    ).records == [{"a": 1, "b": "x"}]


def test_decimals_are_exact_as_text() -> None:
    schema = record(v=logical("bytes", "decimal", precision=30, scale=3))
    for text in ("12345678901234567890.125", "-0.001", "0.000"):
        message = AvroEncoder(schema).encode({"v": text})
        assert AvroMessages(schema, decimals="text").decode([message]).records == [{"v": text}]


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ("int", 2**31, "field 'v' is int 2147483648, but the Avro schema requires an int"),
        ("long", True, "field 'v' is bool True"),
        ("long", None, "field 'v' is missing or None, but the Avro schema requires a long"),
        ("float", 1e300, "in the range of single floats"),
        ("double", 10**400, "in the range of floats"),
        ("string", b"x", "field 'v' is bytes b'x', but the Avro schema requires a string"),
        ("string", "\ud800", "a string of Unicode"),
        ("bytes", "x", "requires bytes"),
        ("boolean", 1, "requires a boolean"),
        ("null", 1, "requires null"),
        (["null", "long"], "x", "field 'v' is str 'x', but the Avro schema requires a long"),
        (["long", "string"], 1.5, "one of several types, none of which it is"),
        ({"type": "array", "items": "long"}, [1, "x"], r"field 'v\[1\]' is str 'x'"),
        ({"type": "array", "items": "long"}, "x", "requires an array"),
        ({"type": "map", "values": "long"}, {"a": None}, r"field 'v\.a' is missing or None"),
        ({"type": "map", "values": "long"}, {1: 1}, "a map with names that are text"),
        (INNER, {"at": "x"}, r"field 'v\.at' is str 'x'"),
        (INNER, {"at": 1, "more": 1}, r"field 'v\.more' is not in the Avro schema"),
        (INNER, 3, "requires a record Inner"),
        (logical("int", "date"), "2026-02-30", "requires a date"),
        (logical("int", "date"), 3, "requires a date"),
        (logical("long", "timestamp-nanos"), 2**62, "requires a long"),
        (FIXED16, "x", "requires a UUID"),
        (FIXED16, 3, "requires a UUID"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "requires 2 bytes"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "requires one of A"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A"], "requires one of A"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            100.0,
            "a decimal with 4 digits, 2 of them",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), "1.234", "a decimal with 4 digits"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            "1e-99999999",
            "a decimal with 4 digits",
        ),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            float("nan"),
            "a decimal with 4 digits",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), True, "a decimal with 4 digits"),
    ],
)
def test_what_does_not_fit_is_told_with_the_path_of_its_field(
    schema: Any, value: Any, told: str
) -> None:
    with pytest.raises(RecordError, match=told):
        AvroEncoder(record(v=schema)).encode({"v": value})


def test_a_value_that_nests_too_deeply_is_refused() -> None:
    tree = record(next=["null", "R"])
    value: dict[str, Any] = {"next": None}
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(RecordError, match="nests too deeply"):
        AvroEncoder(tree).encode(value)


@pytest.mark.parametrize("size", [None, 8])
def test_a_field_that_is_declared_as_a_decimal_is_exact(size: int | None) -> None:
    kind = logical("bytes", "decimal", precision=18, scale=3)
    if size:
        kind = {**kind, "type": "fixed", "name": "D", "size": size}
    schema = record(v=["null", kind], w=logical("bytes", "decimal", precision=9, scale=2))
    encode, types = AvroEncoder(schema).encode, {"v": "decimal(17, 2)"}
    given = ["-12345678901234.5", None, "0.125", "12345678901234.120"]
    messages = [encode({"v": v, "w": "0.5"}) for v in given]
    found = AvroMessages(schema, fields=types).decode(messages)
    units = [-1234567890123450, None, 1234567890123412]
    assert found.records == [{"v": each, "w": 0.5} for each in units]
    assert "more than 2 digits behind the point" in found.wrong[2]


def test_a_decimal_is_written_where_all_of_its_digits_have_room() -> None:
    schema = record(text="string", price=logical("bytes", "decimal", precision=18, scale=2))
    row = {"text": Decimal("10.50"), "price": Decimal("9007199254740993.25")}
    message = AvroEncoder(schema).encode(row)
    [found] = AvroMessages(schema, None, "text").decode([message]).records
    assert found == {"text": "10.50", "price": "9007199254740993.25"}
    with pytest.raises(RecordError, match="field 'x' is Decimal"):
        AvroEncoder(record(x="double")).encode({"x": Decimal("0.5")})
