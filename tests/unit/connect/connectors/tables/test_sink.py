"""Options of tables, and upserts compared with a dict."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from millwheel.connect.connectors.external.target import NOTHING_YET, Owner, RowsRefusedError
from millwheel.connect.connectors.tables.committer import Committer
from millwheel.connect.connectors.tables.sink import TableSink, TableSinkOptions, TableTarget
from millwheel.connect.connectors.tables.table import LakeTable, TableMark
from millwheel.connect.kinds import build_sink
from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.core.windows.panes import Retraction
from millwheel.errors import SetupError
from tests.fakes.lake_tables import delta_table, iceberg_table

KINDS: list[Any] = [
    pytest.param(delta_table, id="delta"),
    pytest.param(iceberg_table, id="iceberg"),
]
FIELDS = {"country": "str", "at": "timestamp", "n": "int"}


def read(table: LakeTable) -> list[dict[str, Any]]:
    found = table.look()._table  # type: ignore[attr-defined]
    rows: list[dict[str, Any]] = (
        found.to_pyarrow_table() if isinstance(found, DeltaTable) else found.scan().to_arrow()
    ).to_pylist()
    return rows


def target(table: LakeTable, **options: Any) -> TableTarget:
    form = TableSinkOptions(fields=FIELDS, **options)
    TableSink(form, table).check("root")
    return TableTarget(form, Committer(table), Owner("root/s", 1))


def record(value: Any, back: bool = False) -> SinkRecord:
    return SinkRecord("k", Retraction(value) if back else value, 0)


@pytest.mark.parametrize("make", KINDS)
def test_an_upsert_leaves_the_rows_that_stand(
    make: Callable[[Path], LakeTable], tmp_path: Path
) -> None:
    """Emissions and retractions, also of rows of earlier batches, and of rows that do not stand any
    more."""
    random.seed(7)
    table = make(tmp_path)
    to, standing = target(table, mode="upsert", by=["country"]), {}
    for number in range(6):
        records = []
        for _ in range(5):
            country, n = random.choice("ABCD"), random.randrange(3)
            row = {"country": country, "at": 0, "n": n}
            back = random.random() < 0.4
            records.append(record(row, back))
            if not back:
                standing[country] = n
            elif standing.get(country) == n:
                del standing[country]
        to.write(number, records)
        assert {row["country"]: row["n"] for row in read(table)} == standing, number
        assert len(read(table)) == len(standing)


@pytest.mark.parametrize("make", KINDS)
def test_rows_that_do_not_fit_are_refused_in_words(
    make: Callable[[Path], LakeTable], tmp_path: Path
) -> None:
    table = make(tmp_path)
    to = target(table, mode="upsert", by="country")
    rows = [
        {"country": "DE", "n": 1},
        {"country": "DE", "n": "x"},
        {"n": 1},
        {"country": "FR", "m": 1},
    ]
    with pytest.raises(RowsRefusedError) as raised:
        to.write(0, [record(row) for row in rows])
    assert sorted(raised.value.reasons) == [1, 2, 3]
    assert "the row has no 'country'" in raised.value.reasons[2]
    assert "no column 'm'" in raised.value.reasons[3]
    assert read(table) == []


def test_changes_are_rows_with_a_mark(tmp_path: Path) -> None:
    table = delta_table(tmp_path)
    options = TableSinkOptions(mode="changelog", fields={"change": "str", "n": "int"})
    TableSink(options, table).check("root")
    TableTarget(options, Committer(table), Owner("s", 1)).write(
        0, [record({"n": 1}), record({"n": 1}, back=True)]
    )
    assert sorted(row["change"] for row in read(table)) == ["+", "-"]


def test_a_table_must_be_there_or_be_declared(tmp_path: Path) -> None:
    sink = build_sink(SinkSpec("out", "delta", {"path": "table"}), str(tmp_path))
    with pytest.raises(SetupError, match="declare its columns with the option 'fields'"):
        sink.check("root")
    by = {"mode": "upsert", "by": "land", "fields": {"country": "str"}}
    sink = build_sink(SinkSpec("out", "delta", {"path": "table", **by}), str(tmp_path))
    with pytest.raises(SetupError, match="has no column 'land'"):
        sink.check("root")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("delta", {}, "needs the option 'path'"),
        ("delta", {"path": "x", "mode": "upsert"}, "option 'by'"),
        ("delta", {"path": "x", "by": "a"}, "option 'by'"),
        ("delta", {"path": "x", "fields": {"a": "text"}}, "option 'fields': 'a' is 'text'"),
        ("delta", {"path": "x", "batch_rows": 0}, "option 'batch_rows' is 0"),
        ("delta", {"path": "x", "flush": "soon"}, "option 'flush'"),
        ("iceberg", {"table": "a.b"}, "needs the option 'catalog'"),
        (
            "iceberg",
            {"table": "b", "catalog": {"type": "sql"}},
            "option 'table' is 'b'; write namespace.table",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_fix(
    kind: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        build_sink(SinkSpec("out", kind, options), "/")


@pytest.mark.parametrize("make", KINDS)
def test_rows_that_can_never_fit_are_told_before_the_run(
    make: Callable[[Path], LakeTable], tmp_path: Path
) -> None:
    sink = TableSink(TableSinkOptions(fields=FIELDS), make(tmp_path))
    sink.check("root")
    sink.check_fields(["country", "n"])
    with pytest.raises(
        SetupError, match=r"a field 'contry', and .* no such column; did you mean 'country'"
    ):
        sink.check_fields(["contry", "n"])
    (tmp_path / "marked").mkdir()
    changes = TableSinkOptions(fields={**FIELDS, "change": "str"}, mode="changelog")
    marked = TableSink(changes, make(tmp_path / "marked"))
    marked.check("root")
    marked.check_fields(["country", "at", "n"])
    with pytest.raises(SetupError, match="a field 'key'"):
        TableSink(TableSinkOptions(fields=FIELDS, with_key=True), make(tmp_path)).check_fields(
            ["country"]
        )


# table.py: What is noted of a shard that has not written yet.


def test_a_shard_that_is_not_known_has_no_number_and_the_lowest_token() -> None:
    assert TableMark() == TableMark(NOTHING_YET, 0)
