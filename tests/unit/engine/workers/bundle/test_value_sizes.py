from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.sources.files.json_lines import JsonLines
from millwheel.connect.sources.files.lines import Block
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.records import Values
from millwheel.engine.workers.bundle import value_sizes
from millwheel.engine.workers.bundle.value_sizes import carried


class Click(msgspec.Struct, tag="click", rename="camel"):
    ad_id: int
    some_text: str
    cost: float
    seen: bool


class Defaulted(msgspec.Struct):
    ad: int = 10**30


class Changed(msgspec.Struct):
    ad: int

    def __post_init__(self) -> None:
        self.ad = 10**30


class Deep(msgspec.Struct):
    parts: list[int]


CLICKS = st.builds(
    Click,
    st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63) - 1])
    ),
    st.text(max_size=9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


def read(values: list[Any], kind: type) -> list[Any]:
    lines = [msgspec.json.encode(value) + b"\n" for value in values]
    ends = np.cumsum(list(map(len, lines)), dtype=np.int64)
    found = JsonLines(kind, FieldTypes({})).decode(Block(b"".join(lines), ends, 0)).values
    assert len(found) == len(values)
    return found


@given(st.lists(CLICKS, min_size=1, max_size=6), st.integers(10, 1_000_000))
def test_what_the_type_tells_is_what_encoding_tells(clicks: list[Click], most: int) -> None:
    values = read(clicks * 70, Click)
    size, found = carried(values, most)
    exact, looked_up = carried(list(values), most)
    assert found == looked_up
    assert found or exact // 2 < size < exact * 2 + 64
    assert isinstance(values, Values)
    longest = max((len(encode_value(value)) for value in values if not looked_up), default=0)
    assert longest <= values.text_bytes + len(values) * 200


@pytest.mark.parametrize("kind", [Defaulted, Changed, Deep, int])
def test_a_type_that_does_not_tell_is_encoded(kind: type) -> None:
    text = {Changed: b'{"ad": 1}', Deep: b'{"parts": [1]}', int: b"1"}.get(kind, b"{}")
    values = [msgspec.json.decode(text, type=kind) for _ in range(80)]
    assert carried(Values(values, kind, 10_000), 1000)[1] == carried(values, 1000)[1]
    assert value_sizes._fields_of(kind) is None


def test_records_of_a_plain_type_are_not_encoded_one_and_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[int] = []
    monkeypatch.setattr(
        value_sizes, "encode_value", lambda some: encoded.append(len(some)) or encode_value(some)
    )
    values = read([Click(1, "x", 0.5, True)] * 1000, Click)
    carried(values, 1 << 20)
    carried(values, 1000)  # a single one might be larger, as far as the length of the text tells
    assert [length < 100 for length in encoded] == [True, False]


def test_plain_records_can_all_be_carried() -> None:
    assert carried([{"a": 1}, {"b": [1.5, None, "x"]}, {"c": 2**64 - 1}], 1000)[1] == {}


def test_an_integer_beyond_64_bits_condemns_its_own_record_only() -> None:
    _, found = carried([{"a": 1}, {"a": 10**30}, {"a": {"deep": [-(2**63) - 1]}}], 1000)
    assert sorted(found) == [1, 2]
    assert all("cannot be carried" in reason for reason in found.values())


def test_a_record_over_the_limit_is_told_by_its_size_and_no_other() -> None:
    size, found = carried([{"a": "x" * 50}, {"a": "x" * 2000}, {"a": "y" * 60}], 1000)
    assert size > 2110
    assert sorted(found) == [1]
    assert "over limits.record (1kB)" in found[1]
