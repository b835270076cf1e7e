from __future__ import annotations

import json
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.sources.files import json_lines
from millwheel.connect.sources.files.json_lines import JsonLines, WholeJsonLines, one_object_a_line
from millwheel.connect.sources.files.lines import Block, Decoded
from millwheel.core.columns.declared_fields import FieldTypes, row_type


class Row(msgspec.Struct):
    n: int


def block(*lines: bytes, base: int = 0) -> Block:
    return Block(b"".join(lines), np.cumsum([len(line) for line in lines]), base)


def decode(
    *lines: bytes, schema: type | None = None, fields: dict[str, str] | None = None
) -> Decoded:
    return JsonLines(schema, FieldTypes(fields or {})).decode(block(*lines, base=100))


def test_good_lines_are_decoded_together_and_each_is_a_record() -> None:
    found = decode(b'{"n":1}\n', b'{"n":2}\r\n', b'{"n":3}')
    assert (found.positions, found.values, found.rejects) == (
        None,
        [{"n": 1}, {"n": 2}, {"n": 3}],
        [],
    )


def test_a_bad_line_is_a_reject_with_its_column_and_costs_no_other() -> None:
    found = decode(b'{"n":1}\n', b'{"n":}\n', b"\n", b'{"n":3}\n')
    assert found.values == [{"n": 1}, {"n": 3}]
    assert found.positions == [108, 124]
    [reject] = found.rejects
    assert (reject.position, reject.raw) == (115, '{"n":}')
    assert "(column 6)" in reject.reason


@pytest.mark.parametrize("line", [b'{"n":1}{"n":2}\n', b'[{"n":1}]\n', b'{"n":1\n'])
def test_a_line_is_one_object_or_none(line: bytes) -> None:
    found = decode(line, b'{"n":9}\n')
    assert found.values == [{"n": 9}]
    assert len(found.rejects) == 1


def test_what_has_another_type_than_declared_is_a_reject() -> None:
    found = decode(b'{"n":1}\n', b'{"n":"x"}\n', fields={"n": "int"})
    assert (found.values, found.positions) == ([{"n": 1}], [108])
    assert found.rejects[0].reason == "field 'n' is str 'x', but is declared as int"


def test_a_schema_makes_objects_and_refuses_what_is_no_text() -> None:
    found = decode(b'{"n":1}\n', b'{"n":2,"skipped":"\xff"}\n', b'{"n":"3"}\n', schema=Row)
    assert found.values == [Row(1)]
    assert [reject.position for reject in found.rejects] == [130, 140]


def test_two_objects_that_make_up_for_an_empty_line_are_seen() -> None:
    """As many values as lines: only the braces tell that they are not one on each."""
    assert one_object_a_line(block(b'{"n":1}\n', b'{"n":2}\r\n'))
    assert not one_object_a_line(block(b'{"n":1} {"n":2}\n', b" \n"))


def what_is_wrong_with(line: str) -> str:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError as ex:
        return str(ex)
    return ""


PIECES = st.sampled_from(
    ["1", "0", ".", "-", "e", "E", "+", "999", "e400", "e+400", "a", '"', ":", ",", "[", " ", "1e9"]
)


@given(st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=4))
def test_every_line_with_a_number_beyond_all_floats_is_among_those_that_are_looked_at(
    texts: list[str],
) -> None:
    lines = [json.dumps({"a": text, "b": [text]}) for text in texts] + [
        f'{{"a": {text}}}' for text in texts
    ]
    lines += [f'{{"a":[0,{text}]}}' for text in texts]
    data = [line.encode() + b"\n" for line in lines]
    block = Block(b"".join(data), np.cumsum([len(line) for line in data]), 100)
    found = json_lines._huge_numbers(block)
    beyond = [
        index for index, line in enumerate(lines) if "out of range" in what_is_wrong_with(line)
    ]
    assert set(beyond) <= set(found)
    for index in found:
        assert re.search(r"[eE]\+?[0-9]{3}", lines[index])


@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("1e999", False),
        ("[-1.5e+400]", False),
        ("[0,1E400]", False),
        ("-1.5E+400", False),
        ("9" * 400 + ".0", False),
        ("9" * 250 + "e99", False),
        ("9" * 205 + "e99", True),
        ("1e308", True),
        ("1e-999", True),
        ("9" * 400, True),
        ('"3e999"', True),
        ('"' + "7" * 400 + '"', True),
    ],
)
def test_a_number_beyond_all_floats_makes_a_line_a_reject_though_nobody_needs_it(
    number: str, fits: bool
) -> None:
    lines = [
        b'{"a": 1}\n',
        b'{"a": 2, "other": ' + number.encode() + b"}\n",
        b'{"a": 3, "hash": "a3e1234f"}\n',
    ]
    block = Block(b"".join(lines), np.cumsum([len(line) for line in lines]), 100)
    whole = JsonLines(None, FieldTypes({})).decode(block)
    some = WholeJsonLines(row_type({"a": "int"}, "a"), FieldTypes({})).decode(block)
    assert [reject.position for reject in whole.rejects] == [
        reject.position for reject in some.rejects
    ]
    assert bool(some.rejects) != fits


def test_decimals_are_read_as_they_are_written() -> None:
    found = decode(
        b'{"d":0.30000000000000000,"x":0.1}\n', b'{"d":"1.10"}\n', b'{"d":0.001,"x":1e999}\n',
        b'{"d":1234567890123456.78}\n', fields={"d": "decimal(18, 2)"},
    )  # fmt: skip
    assert found.values == [{"d": 30, "x": 0.1}, {"d": 110}, {"d": 123456789012345678}]
    [reject] = found.rejects
    assert "field 'x': a number is too large" in reject.reason
