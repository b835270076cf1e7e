"""Columns of Avro messages are what its decoder of single messages finds, or there are none."""

from __future__ import annotations

import random
from typing import Any

import fastavro
import polars as pl
import pytest

from millwheel.connect.formats.avro.columns import AvroColumns, avro_columns
from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.connect.formats.avro.schema import parse
from millwheel.core.columns.declared_fields import frame_of

KINDS = {
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "boolean": "bool",
    "string": "str",
}
NUMBERS = [
    0,
    1,
    -1,
    63,
    64,
    -65,
    2**31 - 1,
    2**41,
    -(2**55),
    2**55,
    2**62,
    -(2**62) - 5,
    2**63 - 1,
    -(2**63),
]
TEXTS = ["", "x", "click", "größer", "日本", "a" * 70]


def schema(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{index}", "type": kind} for index, kind in enumerate(fields)],
    }


def columns(of: Any, wanted: dict[str, str]) -> AvroColumns | None:
    parsed = parse(of)
    return avro_columns(parsed.bare, parsed.full, wanted)


def value(kind: Any, drawn: random.Random) -> Any:
    if isinstance(kind, list):
        return (
            None
            if drawn.random() < 0.4
            else value(next(each for each in kind if each != "null"), drawn)
        )
    if kind == "int":
        return drawn.choice(NUMBERS[:7])
    if kind == "long":
        return drawn.choice(NUMBERS)
    if kind in ("float", "double"):
        return drawn.choice([0.0, -1.5, 2.0**20, float("inf")])
    return drawn.choice([True, False]) if kind == "boolean" else drawn.choice(TEXTS)


def by_rows(of: Any, messages: list[bytes], wanted: dict[str, str]) -> pl.DataFrame | None:
    found = AvroMessages(of, fields=wanted).decode(messages)
    return None if found.wrong else frame_of(found.records, wanted)


def drawn_case(seed: int) -> tuple[Any, list[bytes], dict[str, str]]:
    drawn = random.Random(seed)
    plain = [drawn.choice(list(KINDS)) for _ in range(drawn.randint(1, 6))]
    kinds: list[Any] = [
        drawn.choice([kind, kind, ["null", kind], [kind, "null"]]) for kind in plain
    ]
    of = schema(*kinds)
    rows = [
        {f"f{at}": value(kind, drawn) for at, kind in enumerate(kinds)}
        for _ in range(drawn.randint(1, 9))
    ]
    wanted = {
        f"f{at}": KINDS[
            next(each for each in (kind if isinstance(kind, list) else [kind]) if each != "null")
        ]
        for at, kind in enumerate(kinds)
        if drawn.random() < 0.7
    }
    return of, list(map(AvroEncoder(of).encode, rows)), wanted or {"missing": "str"}


@pytest.mark.parametrize("seed", range(60))
def test_columns_hold_what_rows_hold(seed: int) -> None:
    of, messages, wanted = drawn_case(seed)
    made = columns(of, wanted)
    assert made is not None
    found, expected = made.frame(messages), by_rows(of, messages, wanted)
    assert found is not None
    assert expected is not None
    assert found.schema == expected.schema
    assert found.equals(expected)


@pytest.mark.parametrize("seed", range(60))
def test_of_damaged_messages_there_are_no_columns_but_those_of_rows(seed: int) -> None:
    of, messages, wanted = drawn_case(seed)
    drawn = random.Random(seed)
    made = columns(of, wanted)
    assert made is not None
    for _ in range(20):
        index = drawn.randrange(len(messages))
        data = bytearray(messages[index] or b"\0")
        how = drawn.random()
        if how < 0.3:
            data = data[: drawn.randrange(len(data))]
        elif how < 0.5:
            data += bytes([drawn.randrange(256)])
        else:
            data[drawn.randrange(len(data))] = drawn.choice([0, 1, 2, 0x7F, 0x80, 0xC3, 0xFF])
        damaged = [*messages[:index], bytes(data), *messages[index + 1 :]]
        found, expected = made.frame(damaged), by_rows(of, damaged, wanted)
        assert found is None or (expected is not None and found.equals(expected))


def test_texts_are_valid_each_alone_also_those_that_nobody_wants() -> None:
    of = schema("string", "long")
    halves = [b"\x02\xc3\x02", b"\x02\xa4\x02"]  # "ä", cut in two
    for wanted in ({"f0": "str"}, {"f1": "int"}):
        made = columns(of, wanted)
        assert made is not None
        assert made.frame(halves) is None
        assert len(AvroMessages(of, fields=wanted).decode(halves).wrong) == 2


def test_times_are_microseconds_and_may_not_leave_64_bits() -> None:
    of = schema(
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        ["null", {"type": "long", "logicalType": "timestamp-micros"}],
    )
    wanted = {"f0": "int", "f1": "int", "f2": "int"}
    made = columns(of, wanted)
    assert made is not None
    plain = fastavro.parse_schema(schema("long", "long", ["null", "long"]))
    encode = AvroEncoder(plain).encode
    good = [encode({"f0": 7, "f1": -1, "f2": None}), encode({"f0": -7, "f1": 2_500, "f2": 3})]
    found = made.frame(good)
    assert found is not None
    assert found.rows() == [(7_000, -1, None), (-7_000, 2, 3)]
    expected = by_rows(of, good, wanted)
    assert expected is not None
    assert found.equals(expected)
    assert made.frame([*good, encode({"f0": 2**62, "f1": 0, "f2": 0})]) is None


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ({"type": "array", "items": "long"}, "int"),
        ({"type": "int", "logicalType": "date"}, "str"),
        (["long", "string"], "int"),
        ("long", "float"),
        ("bytes", "str"),
        ("string", "int"),
    ],
)
def test_what_is_not_plain_is_left_to_rows(kind: Any, wanted: str) -> None:
    assert columns(schema(kind), {"f0": wanted}) is None
    assert columns("long", {"f0": "int"}) is None
    assert columns(schema("long"), {}) is None
