"""Apache Iceberg tables in a catalog in SQLite: the contract of external sinks, and what lies in
the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.tables.committer import Committer, PreparedRows
from millwheel.connect.connectors.tables.iceberg import _superset
from millwheel.connect.connectors.tables.table import TableChange, TableConflictError, TableMark
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
    with pytest.raises(
        SetupError,
        match=r"the Iceberg table shop\.counts of the catalog default at .* is not there",
    ):
        iceberg_table(tmp_path).look()


def test_rows_of_many_keys_of_several_fields_are_replaced_and_no_others(tmp_path: Path) -> None:
    table, count = iceberg_table(tmp_path), 300
    table.create(SCHEMA)
    numbers = list(range(count))
    keys = pa.table({"batch": numbers, "row": numbers}, schema=SCHEMA)
    # of values that occur in keys
    beside = pa.table({"batch": numbers[:-1], "row": numbers[1:]}, schema=SCHEMA)
    table.look().commit(TableChange({"a": TableMark(0, 1)}, pa.concat_tables([keys, beside])))
    table.look().commit(TableChange({"a": TableMark(1, 1)}, rows(-1), keys))
    found = sorted((row["batch"], row["row"]) for row in read(tmp_path))
    assert found == [(-1, -1), *((number, number + 1) for number in numbers[:-1])]


def test_a_filter_has_a_step_for_each_field_and_none_for_each_key() -> None:
    """pyarrow recurses over a filter with a step for each key, and 10,000 of them ended the
    process."""
    numbers = list(range(20_000))
    assert (
        repr(_superset(pa.table({"batch": numbers, "row": numbers}, schema=SCHEMA))).count("Or(")
        == 0
    )
