"""Delta Lake tables. Number and token of a shard are versions of two of its application
transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millwheel.connect.connectors.external.target import NOTHING_YET
from millwheel.connect.connectors.tables.table import (
    LakeTable,
    TableChange,
    TableConflictError,
    TableMark,
    TableVersion,
    failed,
    reason,
)
from millwheel.errors import SetupError

_TOKEN = "#token"
_NOT_IN_PATHS = re.compile(r"[\[\]^|\\]|%[0-9A-Fa-f]{2}")
"""Text in the path of a table that the library cannot handle: it panics, or looks elsewhere for the
files."""
_ADD = "__millwheel_add"


def library() -> Any:
    """The ``deltalake`` module. Raises SetupError if it is not installed."""
    try:
        import deltalake
    except ImportError as ex:
        raise SetupError(
            "Delta Lake needs the package deltalake; install it with: pip install"
            " 'millwheel-spark[delta]'"
        ) from ex
    return deltalake


def check_path(path: str) -> None:
    """Raises ValueError for a path that the library cannot use. ``path`` is that of a folder."""
    if match := _NOT_IN_PATHS.search(path):
        raise ValueError(
            f"option 'path': the library deltalake cannot use a folder with {match[0]!r} in its"
            f" path, {path}; choose another name"
        )


class DeltaLakeTable(LakeTable):
    """``options`` are those of deltalake's object store: endpoint, region, credentials."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        endpoint = next(
            (str(value) for name, value in options.items() if "endpoint" in name.lower()), ""
        )
        self.where = f"the Delta table {path}{f' at {endpoint}' if endpoint else ''}"
        self.identity = (
            "delta",
            path,
            *sorted((name, str(value)) for name, value in options.items()),
        )
        self._path = path
        self._options = {name: str(value) for name, value in options.items()} or None

    def look(self) -> DeltaVersion:
        lake = library()
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaVersion(
                lake.DeltaTable(self._path, storage_options=self._options), self.where
            )
        except TableNotFoundError as ex:
            raise SetupError(
                f"{self.where} is not there; create it, or declare its columns with the option"
                " 'fields'"
            ) from ex
        except BaseException as ex:  # also a panic, which is not an Exception
            raise failed(ex, self.where) from ex

    def create(self, schema: pa.Schema) -> None:
        try:
            library().DeltaTable.create(
                self._path, schema=schema, mode="ignore", storage_options=self._options
            )
        except BaseException as ex:
            raise failed(ex, self.where) from ex


class DeltaVersion(TableVersion):
    """One loaded version of the table."""

    def __init__(self, table: Any, where: str) -> None:
        self._table = table
        self._where = where
        self.schema = pa.schema(table.schema().to_arrow())

    def mark(self, name: str) -> TableMark:
        number, token = (
            self._table.transaction_version(name),
            self._table.transaction_version(name + _TOKEN),
        )
        return TableMark(NOTHING_YET if number is None else number, token or 0)

    def commit(self, change: TableChange) -> None:
        from deltalake.exceptions import CommitFailedError

        lake = library()
        noted = [lake.Transaction(name + _TOKEN, mark.token) for name, mark in change.marks.items()]
        noted += [
            lake.Transaction(n, mark.number)
            for n, mark in change.marks.items()
            if mark.number > NOTHING_YET
        ]
        # No retries of the library: it would commit on top of a version whose marks were not read.
        properties = lake.CommitProperties(app_transactions=noted, max_commit_retries=0)
        try:
            if change.remove is None:
                lake.write_deltalake(
                    self._table, change.add, mode="append", commit_properties=properties
                )
            else:
                self._merge(change.add, change.remove, properties)
        except CommitFailedError as ex:
            raise TableConflictError(f"another commit was first: {reason(ex)}") from ex
        except BaseException as ex:
            raise failed(ex, self._where) from ex

    def _merge(self, add: pa.Table, remove: pa.Table, properties: Any) -> None:
        """One row for each identity: the current row, or a marker that there is none."""
        by = remove.schema.names
        standing = {tuple(row.values()) for row in add.select(by).to_pylist()}
        removed = remove.filter(
            pa.array(
                [tuple(row.values()) not in standing for row in remove.to_pylist()], pa.bool_()
            )
        )
        marked = [
            part.append_column(_ADD, pa.array([flag] * part.num_rows, pa.bool_()))
            for part, flag in ((add, True), (removed, False))
        ]
        source = pa.concat_tables(marked, promote_options="default")
        same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in by)
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in add.schema.names}
        (
            self._table.merge(
                source,
                same,
                source_alias="source",
                target_alias="target",
                commit_properties=properties,
            )
            .when_matched_delete(f"NOT source.{_ADD}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, predicate=f"source.{_ADD}")
            .execute()
        )

    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        """Reads the whole columns, batch by batch: only for retractions of rows of earlier
        batches."""
        key_values = {tuple(row.values()) for row in keys.to_pylist()}
        rows: list[dict[str, Any]] = []
        for batch in self._batches():
            identities = [tuple(row.values()) for row in batch.select(list(by)).to_pylist()]
            indexes = [index for index, identity in enumerate(identities) if identity in key_values]
            rows += batch.take(pa.array(indexes, pa.int64())).to_pylist() if indexes else []
        return rows

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._table.to_pyarrow_dataset().to_batches()
        except Exception as ex:
            raise failed(ex, self._where) from ex


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
