"""The rows of a table in columns, and which records get them so."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.tables import EnrichColumns, TableColumns, table_columns
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import key_bytes
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.work import BroadcastSpec, EnrichSpec, Missing

BY_K = KeySpec(KeyKind.FIELD, ("k",))
LARGEST = 1.7976931348623157e308


def columns_of(*rows: Any, keys: Any = None) -> TableColumns | None:
    named = range(len(rows)) if keys is None else keys
    return table_columns(
        {key_bytes(key): encode_value(row) for key, row in zip(named, rows, strict=True)}
    )


@pytest.mark.parametrize(
    "rows",
    [
        ({"a": 1, "b": "x"}, {"a": None, "b": "y"}),
        ({"a": -0.0}, {"a": LARGEST}, {"a": -LARGEST}),
        ({"a": -(2**63), "b": True}, {"a": 2**63 - 1, "b": False}),
        ({"a": None}, {"a": None}),
    ],
)
def test_rows_that_are_alike_are_what_they_were(rows: tuple[Any, ...]) -> None:
    made = columns_of(*rows)
    assert made is not None
    positions = made.positions(pl.Series([len(rows) - 1, 7, 0], dtype=pl.Int64))
    assert repr(made.at(positions).to_list()) == repr([rows[-1], None, rows[0]])


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ({},),
        (7,),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1, "b": None}),
        ({"a": 2**63},),
        ({"a": float("inf")},),
        ({"a": [1]},),
    ],
)
def test_other_rows_have_no_columns(rows: tuple[Any, ...]) -> None:
    assert columns_of(*rows) is None


def batch(**fields: Any) -> ColumnBatch:
    frame = pl.DataFrame(fields)
    count = frame.height
    keys = pl.Series(["part"] * count)
    return ColumnBatch("hits", np.array([], np.int64), np.arange(count), keys, frame)


def enrichment(
    missing: Missing = Missing.KEEP, by: KeySpec = BY_K, name: str = "of", most: int = 1_000
) -> EnrichColumns:
    work = EnrichSpec("sides", name, missing, broadcast=BroadcastSpec(1, by, by))
    return EnrichColumns(work, ("one", "two"), compile_expression, most)


ROWS = columns_of({"v": 5}, {"v": 7})


def found(columns: EnrichColumns, given: ColumnBatch, table: TableColumns | None = ROWS) -> Any:
    """What each output has, and how many were left out; None: it goes by rows."""
    assert table is not None
    passed = columns.passed(given, table)
    if passed is None:
        return None
    one, two = passed.parts or (given.part(0, 0), given.part(0, 0))
    assert one.frame.equals(two.frame)
    return one.frame.to_dicts(), one.timestamps.tolist(), passed.unmatched


def test_each_record_gets_the_row_of_its_key() -> None:
    given = batch(k=[1, 4, 0])
    rows = [{"k": 1, "of": {"v": 7}}, {"k": 4, "of": None}, {"k": 0, "of": {"v": 5}}]
    assert found(enrichment(), given) == (rows, [0, 1, 2], 0)
    assert found(enrichment(Missing.DROP), given) == ([rows[0], rows[2]], [0, 2], 1)
    assert found(enrichment(Missing.DROP), batch(k=[4, 4])) == ([], [], 2)
    assert found(enrichment(Missing.DEAD_LETTER), given) is None
    assert found(enrichment(Missing.DEAD_LETTER), batch(k=[1])) == (rows[:1], [0], 0)


def test_a_field_of_its_name_is_replaced_where_it_stands() -> None:
    [[row], _, _] = found(enrichment(name="x"), batch(x=[1.5], k=[0]))
    assert list(row.items()) == [("x", {"v": 5}), ("k", 0)]


def test_keys_are_fields_expressions_or_those_that_records_came_with() -> None:
    rest = KeySpec(KeyKind.EXPRESSIONS, ("rest",), texts=("k % 2",))
    [rows, _, _] = found(enrichment(by=rest), batch(k=[4, 9]))
    assert [row["of"]["v"] for row in rows] == [5, 7]
    both = KeySpec(KeyKind.FIELDS, ("k", "s"))
    table = columns_of({"v": 1}, {"v": 2}, keys=[(1, "a"), (1, "b")])
    [rows, _, _] = found(enrichment(by=both), batch(k=[1, 1, 2], s=["b", "a", "a"]), table)
    assert [row["of"] and row["of"]["v"] for row in rows] == [2, 1, None]
    table = columns_of({"v": 3}, keys=["part"])
    [rows, _, _] = found(enrichment(by=KeySpec(KeyKind.RECORD)), batch(k=[1]), table)
    assert rows[0]["of"] == {"v": 3}


@pytest.mark.parametrize(
    "fields",
    [{"k": [1, None]}, {"k": [1.0]}, {"k": [True]}, {"n": [1]}, {"k": ["x" * 400]}],
)
def test_what_may_be_no_key_goes_by_rows(fields: Any) -> None:
    assert found(enrichment(), batch(**fields)) is None


def test_a_number_is_no_text() -> None:
    table = columns_of({"v": 1}, {"v": 2}, keys=[1, "1"])
    [rows, _, _] = found(enrichment(), batch(k=["1", "x"]), table)
    assert [row["of"] for row in rows] == [{"v": 2}, None]
