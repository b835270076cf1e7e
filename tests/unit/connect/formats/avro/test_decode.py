"""Converters from Avro values: only where something is to be done."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.formats.avro.decode import converter
from millwheel.connect.formats.avro.schema import parse

TIME = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def named(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "at", "type": kind}]}


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        MICROS,
        named("A", MICROS),
        ["null", "string"],
        {"type": "array", "items": MICROS},
        named("L", ["null", "L"]),
    ],
)
def test_what_is_plain_already_costs_nothing(schema: Any) -> None:
    assert converter(parse(schema).full) is None


@pytest.mark.parametrize(
    "schema",
    [[named("A", TIME), named("B", "long")], [TIME, "int"], ["string", "bytes", TIME, "int"]],
)
def test_branches_that_cannot_be_told_apart_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="a union has two branches whose values are both"):
        converter(parse(schema).full)
