from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millwheel import Retraction
from millwheel.connect.connectors.postgres.sink_options import PostgresSinkOptions
from millwheel.connect.connectors.postgres.statements import waves
from millwheel.connect.connectors.postgres.table import DatabaseTable, TableColumn
from millwheel.connect.connectors.postgres.text_rows import RowMaker, TextRow, evaluators
from millwheel.connect.sinks.base import SinkRecord

TABLE = DatabaseTable(
    "ctr",
    {
        name: TableColumn(name, "bigint", "N", "int8", False, False, True)
        for name in ("ad", "n", "key", "timestamp", "op")
    },
    (),
)


def made(values: list[Any], **options: Any) -> tuple[list[Any], dict[int, str]]:
    given = {"dsn": "host=db", "table": "ctr", **options}
    options = msgspec.convert(given, PostgresSinkOptions)
    maker = RowMaker(options, TABLE, evaluators(options))
    rows, wrong = maker.rows([SinkRecord(9, value, 77) for value in values])
    return [(dict(zip(row.names, row.values, strict=True)), row.back) for row in rows], wrong


def test_fields_go_to_the_columns_of_their_names_and_bounds_of_windows_too() -> None:
    assert made([{"ad": 1, "window_start": 5, "n": None}]) == (
        [({"ad": "1", "n": None}, False)],
        {},
    )
    rows, wrong = made([{"ad": 1}, {"ad": 1, "m": 2}])
    assert len(rows) == 1
    assert "has no column 'm'" in wrong[1]


def test_key_and_timestamp_are_added_on_request() -> None:
    rows, _ = made([{"ad": 1}], with_key=True, with_timestamp=True)
    assert rows == [({"key": "9", "timestamp": "77", "ad": "1"}, False)]


def test_a_retraction_is_a_marked_row_or_takes_a_row_back() -> None:
    assert made([Retraction({"n": 1})], mode="changelog", mark="op")[0] == [
        ({"op": "-", "n": "1"}, False)
    ]
    assert made([Retraction({"ad": 1})], mode="upsert", by="ad")[0] == [({"ad": "1"}, True)]


def test_a_row_without_its_identity_is_refused() -> None:
    _, wrong = made([{"n": 1}, {"ad": None}], mode="upsert", by="ad")
    assert list(wrong) == [0, 1]
    assert "has no 'ad'" in wrong[0]


def test_columns_are_computed_from_the_row() -> None:
    rows, wrong = made([{"a": 3, "b": 4}, {"a": 3}], columns={"n": "a * b"})
    assert rows == [({"n": "12"}, False)]
    assert list(wrong) == [1]


# statements.py


def row(index: int, identity: str, back: bool = False) -> TextRow:
    return TextRow(index, ("id",), (identity,), back, (identity,))


def test_rows_that_are_only_appended_are_one_group() -> None:
    assert [len(wave) for wave in waves([row(n, "a") for n in range(5)], None)] == [5]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_what_happens_to_one_identity_happens_in_its_order(steps: list[tuple[str, bool]]) -> None:
    rows = [row(index, identity, back) for index, (identity, back) in enumerate(steps)]
    found = list(waves(rows, [row.identity for row in rows]))
    for wave in found:
        assert len({each.identity for each in wave}) == len(wave)
        assert len({each.back for each in wave}) == 1
    for identity in "abc":
        indexes = [each.index for wave in found for each in wave if each.identity == (identity,)]
        assert indexes == [each.index for each in rows if each.identity == (identity,)]
