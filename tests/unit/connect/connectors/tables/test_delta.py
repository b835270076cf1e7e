"""Delta Lake tables: the contract of external sinks, and what other engines read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from millwheel.connect.connectors.external.meanings import UnknownError
from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.tables import delta
from millwheel.connect.connectors.tables.committer import Committer, PreparedRows
from millwheel.connect.connectors.tables.delta import DeltaLakeTable
from millwheel.connect.connectors.tables.sink import build_delta_sink
from millwheel.connect.connectors.tables.table import TableChange, TableConflictError, TableMark
from millwheel.errors import SetupError, UnavailableError
from millwheel.testing.contracts import ExternalSinkContract
from tests.fakes.lake_tables import SCHEMA, TableWorld, delta_table


def read(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return rows


class TestAppend(ExternalSinkContract):
    every = 2

    def world(self) -> TableWorld:
        return TableWorld(delta_table, read, "append")


class TestUpsert(ExternalSinkContract):
    every = 4

    def world(self) -> TableWorld:
        return TableWorld(delta_table, read, "upsert")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"batch": numbers, "row": numbers}, schema=SCHEMA)


def test_a_commit_on_an_older_version_is_refused_whatever_it_would_write(tmp_path: Path) -> None:
    table = delta_table(tmp_path)
    table.create(SCHEMA)
    for mine, theirs in (("a", "a"), ("a", "b")):
        ours, stale = table.look(), table.look()
        number = ours.mark(mine).number + 1
        ours.commit(TableChange({mine: TableMark(number, 1)}, rows(1)))
        with pytest.raises(TableConflictError):
            stale.commit(TableChange({theirs: TableMark(number, 1)}, rows(1)))
    assert len(read(tmp_path)) == 2


def test_other_writers_do_not_stop_a_committer(tmp_path: Path) -> None:
    table = delta_table(tmp_path)
    table.create(SCHEMA)
    committer = Committer(table, sleep=lambda seconds: None)
    owner = Owner("root/s", 1)
    assert committer.claim(owner) == -1
    looked = []

    def between(version: Any) -> PreparedRows:
        if not looked:
            write_deltalake(str(tmp_path / "table"), rows(7), mode="append")
        looked.append(version)
        return PreparedRows(rows(8))

    committer.write(owner, 0, between)
    assert len(looked) == 2
    assert sorted(row["row"] for row in read(tmp_path)) == [7, 8]
    assert DeltaTable(tmp_path / "table").transaction_version("root/s") == 0


def test_a_table_that_is_not_there_or_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"the Delta table .* is not there"):
        delta_table(tmp_path).look()
    key = {"access_key_id": "a", "secret_access_key": "hush-hush", "region": "x"}
    away = {"endpoint": "http://127.0.0.1:9", "allow_http": True, "max_retries": 0, **key}
    with pytest.raises(UnavailableError, match="does not answer") as raised:
        DeltaLakeTable("s3://bucket/table", away).look()
    assert "hush" not in str(raised.value)


def test_duckdb_reads_the_same_rows(tmp_path: Path) -> None:
    import duckdb

    table = delta_table(tmp_path)
    table.create(SCHEMA)
    Committer(table).write(Owner("root/s", 1), 0, lambda version: PreparedRows(rows(1, 2)))
    read = DeltaTable(tmp_path / "table").to_pyarrow_dataset()
    assert duckdb.from_arrow(read).sum("row").fetchall() == [(3,)]


@pytest.mark.parametrize("name", ["t [1]", "a^b", "a|b", "a\\b", "a%20b"])
def test_a_path_that_the_library_cannot_use_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="option 'path': the library deltalake cannot use a folder with"
    ):
        build_delta_sink({"path": name}, str(tmp_path))
    for fine in ("a b", "ä", "a#b", "a?b", "50%", "a:b=c"):
        build_delta_sink({"path": fine}, str(tmp_path))


class PanicException(BaseException):
    """As pyo3's."""


def test_a_panic_of_the_library_is_an_error_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def DeltaTable(self, *words: Any, **named: Any) -> Any:
            raise PanicException("index out of bounds")

    monkeypatch.setattr(delta, "library", Library)
    with pytest.raises(UnknownError, match="PanicException: index out of bounds"):
        delta_table(tmp_path).look()
