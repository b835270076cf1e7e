"""Worlds of the contract tests of tables: what a process says to a table is a look or a commit."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millwheel.connect.connectors.tables.committer import Committer
from millwheel.connect.connectors.tables.delta import DeltaLakeTable
from millwheel.connect.connectors.tables.iceberg import IcebergTable
from millwheel.connect.connectors.tables.sink import TableSink, TableSinkOptions
from millwheel.connect.connectors.tables.table import LakeTable, TableChange, TableVersion
from millwheel.testing.contracts import Outside, SinkWorld
from millwheel.tools.testing.contracts.worlds import IDENTITY

SCHEMA = pa.schema([("batch", pa.int64()), ("row", pa.int64())])


class WatchedTable(LakeTable):
    def __init__(self, inner: LakeTable, outside: Outside) -> None:
        self._inner, self._outside = inner, outside
        self.where = inner.where

    def look(self) -> TableVersion:
        return WatchedVersion(self._outside.call("look", self._inner.look), self._outside)

    def create(self, schema: pa.Schema) -> None:
        self._inner.create(schema)


class WatchedVersion(TableVersion):
    def __init__(self, inner: TableVersion, outside: Outside) -> None:
        self._inner, self._outside = inner, outside
        self.schema = inner.schema
        self.mark = inner.mark  # type: ignore[method-assign]
        self.standing = inner.standing  # type: ignore[method-assign]

    def mark(self, name: str) -> Any: ...

    def standing(self, by: Any, keys: Any) -> Any: ...

    def commit(self, change: TableChange) -> None:
        self._outside.call("commit", self._inner.commit, change)


def delta_table(folder: Path) -> DeltaLakeTable:
    return DeltaLakeTable(str(folder / "table"), {})


def iceberg_table(folder: Path) -> IcebergTable:
    catalog: Mapping[str, str] = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return IcebergTable(catalog, "shop.counts")


class TableWorld(SinkWorld):
    """A table in a folder of its own."""

    def __init__(
        self, make: Callable[[Path], LakeTable], read: Callable[[Path], list[Any]], mode: str
    ) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, True)
        self._make, self._read = make, read
        self.options = TableSinkOptions(mode=mode, by=["batch", "row"] if mode == "upsert" else [])
        make(self.folder).create(SCHEMA)

    def sink(self, outside: Outside) -> TableSink:
        table = WatchedTable(self._make(self.folder), outside)
        sink = TableSink(self.options, table)
        sink.identity = IDENTITY
        sink.committer = Committer(table, sleep=lambda seconds: None)  # of this process
        return sink

    def rows(self) -> list[Any]:
        return sorted(self._read(self.folder), key=lambda row: (row["batch"], row["row"]))

    def refused(self) -> tuple[Any, str]:
        return {"batch": 0, "row": "many"}, "column 'row' is int64, which 'many' does not fit"

    def close(self) -> None:
        self._remove()
