"""Apache Iceberg tables in a catalog in SQLite: the contract of external sinks, and what lies in the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from millwheel.connectors.external.target import Owner
from millwheel.connectors.tables.committer import Committer, PreparedRows
from millwheel.connectors.tables.table import TableChange, TableConflictError, TableMark
from millwheel.errors import SetupError
from millwheel.testing.contracts import ExternalSinkContract
from tests.fakes.lake_tables import SCHEMA, TableWorld, iceberg_table


def loaded(folder: Path) -> Any:
    return iceberg_table(folder).look()._table


def read(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = loaded(folder).scan().to_arrow().to_pylist()
    return rows


class TestAppend(ExternalSinkContract):
    every = 4

    def world(self) -> TableWorld:
        return TableWorld(iceberg_table, read, "append")


class TestUpsert(ExternalSinkContract):
    every = 9

    def world(self) -> TableWorld:
        return TableWorld(iceberg_table, read, "upsert")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"batch": numbers, "row": numbers}, schema=SCHEMA)


def test_a_commit_on_an_older_version_is_refused_also_if_it_has_no_rows(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    table.create(SCHEMA)
    for first, second in ((rows(), rows()), (rows(), rows(1)), (rows(1), rows())):
        ours, stale = iceberg_table(tmp_path).look(), iceberg_table(tmp_path).look()
        ours.commit(TableChange({"a": TableMark(ours.mark("a").number + 1, 1)}, first))
        with pytest.raises(TableConflictError):
            stale.commit(TableChange({"b": TableMark(0, 1)}, second))
    assert len(read(tmp_path)) == 1


def test_the_number_stands_in_the_summary_of_the_snapshot(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    table.create(SCHEMA)
    Committer(table).write(Owner("root/s", 3), 0, lambda version: PreparedRows(rows(1, 2)))
    found = loaded(tmp_path)
    assert found.current_snapshot().summary["millwheel.mark.root/s"] == "0:3"
    assert "commit.retry.num-retries" not in found.properties


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"the Iceberg table shop\.counts of the catalog default at .* is not there"):
        iceberg_table(tmp_path).look()
