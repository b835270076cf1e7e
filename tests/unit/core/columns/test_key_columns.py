"""Keys of expressions, computed in columns: those of the rows, or none."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.key_columns import KeyColumns, everything, fields_read, kinds_of_key
from millwheel.core.expressions.language import compile_expression
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.pipeline.keys import INSTANCE, KeyKind, KeySpec
from millwheel.language.spec.key_extractors import load_extractor

FIELDS = {"k": "str", "n": "int", "cost": "float"}


def key_of(**texts: str) -> KeySpec:
    return KeySpec(KeyKind.EXPRESSIONS, tuple(texts), texts=tuple(texts.values()))


def columns(key: KeySpec, frame: pl.DataFrame) -> list[pl.Series] | None:
    return KeyColumns(key, compile_expression).parts(frame)


@pytest.mark.parametrize(
    "texts",
    [
        {"k": "lower(k)"},
        {"half": "n // 2"},
        {"n": "n * 3 - 1", "k": "concat(k, '!')"},
        {"k": "k", "day": "trunc(n, '1s')"},
    ],
)
@given(rows=st.lists(st.tuples(st.sampled_from(["a", "B", "漢"]), st.integers(-9, 9)), min_size=1))
def test_they_are_those_of_the_rows(texts: dict[str, str], rows: list[tuple[str, int]]) -> None:
    key = key_of(**texts)
    records = [{"k": k, "n": n * 1_000_000 + n} for k, n in rows]
    parts = columns(key, pl.DataFrame(records, schema={"k": pl.String, "n": pl.Int64}))
    assert parts is not None
    assert [part.name for part in parts] == list(texts)
    found = [row if len(parts) > 1 else row[0] for row in pl.DataFrame(parts).rows()]
    extract = load_extractor(key, ".")
    assert found == [extract(record) for record in records]


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("n * n", {"n": [1, 2**40]}),  # more than 64 bits
        ("6 // n", {"n": [1, 0]}),
        ("n + 1", {"n": [1, None]}),
        ("n + 1", {"m": [1]}),
        ("n / 2", {"n": [1]}),  # no key at all
        ("n > 2", {"n": [1]}),
        ("lower(k)", {"k": [1]}),
        ("null if n == 1 else n", {"n": [2, 1]}),
    ],
)
def test_what_columns_cannot_tell_is_left_to_rows(text: str, frame: dict[str, Any]) -> None:
    assert columns(key_of(x=text), pl.DataFrame(frame)) is None


def test_the_types_of_fields_may_change_from_batch_to_batch() -> None:
    keys = KeyColumns(key_of(x="max(n, 2)"), compile_expression)
    for values, fits in (([1, 5], True), ([0.5, 1.5], False), ([3, 1], True)):
        parts = keys.parts(pl.DataFrame({"n": values}))
        assert (parts is not None) == fits
        if parts is not None:
            assert parts[0].to_list() == [max(value, 2) for value in values]


def test_a_key_tells_which_fields_it_reads() -> None:
    assert fields_read(key_of(a="n + n", b="lower(k)"), compile_expression) == ("n", "k")
    assert fields_read(KeySpec(KeyKind.FIELDS, ("k", "n")), compile_expression) == ("k", "n")
    assert fields_read(KeySpec(KeyKind.ALL), compile_expression) == ()


def test_a_key_tells_the_types_of_its_parts() -> None:
    def of(key: KeySpec) -> dict[str, str]:
        return kinds_of_key(key, FIELDS, compile_expression)

    assert of(key_of(half="n // 2", k="lower(k)")) == {"half": "int", "k": "str"}
    assert of(KeySpec(KeyKind.FIELD, ("k",), 4)) == {"k": "str", INSTANCE: "int"}
    assert of(KeySpec(KeyKind.ALL)) == {"key": "str"}


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (key_of(x="cost * 2"), "the key cost * 2 is not an int or str"),
        (key_of(x="gone + 1"), "the key gone + 1 has no column form: its field gone is not decl"),
        (key_of(x="json(k, 'a')"), "the key json(k, 'a') has no column form"),
        (KeySpec(KeyKind.FIELD, ("cost",)), "the key cost is not declared as int or str"),
    ],
)
def test_a_key_without_a_column_form_says_why(key: KeySpec, why: str) -> None:
    with pytest.raises(NoColumns, match=re.escape(why)):
        kinds_of_key(key, FIELDS, compile_expression)


def test_everything_is_one_key() -> None:
    assert everything(3).to_list() == ["all"] * 3
    assert everything(0).to_list() == []
