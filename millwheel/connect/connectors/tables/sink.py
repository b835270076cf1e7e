"""Tables as sinks: append rows, or keep the current rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from millwheel.adapters.rights import under_users_umask
from millwheel.adapters.spaces.object_address import local_path
from millwheel.connect.connectors.external.changes import RowChange, changes_of, outcomes
from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import ExternalTarget, Owner, RowsRefusedError
from millwheel.connect.connectors.tables import delta, iceberg
from millwheel.connect.connectors.tables.columns import Columns
from millwheel.connect.connectors.tables.committer import Committer, PreparedRows, committer_of
from millwheel.connect.connectors.tables.table import LakeTable, TableVersion
from millwheel.connect.options import (
    Flush,
    Mark,
    Option,
    WithKey,
    WithTimestamp,
    did_you_mean,
    read_options,
)
from millwheel.connect.sinks.base import SinkRecord, flush_us
from millwheel.connect.sinks.files.parquet import column_type
from millwheel.connect.sinks.result_rows import MODES, Mode, change_rows, rows_of
from millwheel.errors import SetupError, UnavailableError


class TableSinkOptions(msgspec.Struct, frozen=True):
    """The options of the sinks of all kinds of tables."""

    mode: Annotated[
        str,
        Option(
            "upsert",
            MODES,
            text=(
                "`upsert`: the latest row of each identity, without retracted ones;"
                " `changelog`: a row per change, with a mark"
            ),
        ),
    ] = "append"
    by: Annotated[
        str | list[str],
        Option(
            "[country, window_start]",
            text="the field, or fields, that identify a row of `upsert`",
            default="required for `upsert`",
        ),
    ] = []
    mark: Mark = "change"
    fields: Annotated[
        dict[str, str],
        Option(
            "{country: str, window_start: timestamp, clicks: int}",
            text=(
                "columns and [types](objects.md#types-of-parquet); if the table does not"
                " exist, it is created with them"
            ),
        ),
    ] = {}
    flush: Flush = "10s"
    batch_rows: Annotated[
        int,
        Option("10000", text="the most rows in a batch; one commit may contain several batches"),
    ] = 10_000
    with_key: WithKey = False
    with_timestamp: WithTimestamp = False

    def __post_init__(self) -> None:
        flush_us(self.flush)
        if bool(self.by) != (self.mode == Mode.UPSERT):
            raise ValueError(
                "option 'by' says which fields identify a row of mode: upsert; give both, or"
                " neither"
            )
        if not 1 <= self.batch_rows <= 100_000:
            raise ValueError(
                f"option 'batch_rows' is {self.batch_rows}; write how many rows a batch has at most"
            )
        for name, kind in self.fields.items():
            try:
                column_type(kind)
            except ValueError as ex:
                raise ValueError(f"option 'fields': {name!r} is {ex}") from None

    def identity(self) -> tuple[str, ...]:
        """The fields that identify a row; none for rows that are added."""
        return (self.by,) if isinstance(self.by, str) and self.by else tuple(self.by)

    def schema(self) -> pa.Schema:
        """The columns of a new table."""
        return pa.schema([(name, column_type(kind)) for name, kind in self.fields.items()])


class DeltaSinkOptions(TableSinkOptions, frozen=True, kw_only=True):
    """Rows of a Delta table."""

    path: Annotated[
        str,
        Option(
            "tables/counts",
            python="PathText",
            text="a folder, or an address that deltalake takes (`s3://…`, `gs://…`, `abfss://…`)",
        ),
    ]
    config: Annotated[
        dict[str, Any],
        Option(
            "{region: us-east-1}",
            text="options of deltalake's object store, with `${secret:NAME}` for secrets",
        ),
    ] = {}


class IcebergSinkOptions(TableSinkOptions, frozen=True, kw_only=True):
    """Rows of an Iceberg table."""

    table: Annotated[str, Option("shop.counts", text="`namespace.table`")]
    catalog: Annotated[
        dict[str, Any],
        Option(
            '{type: sql, uri: "sqlite:////data/catalog.db", warehouse: "file:///data/warehouse"}',
            text=(
                "settings of pyiceberg's catalog (`type`, `uri`, `warehouse`, …), and its"
                " `name` (`default`)"
            ),
        ),
    ]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.table.rpartition(".")[::2]):
            raise ValueError(
                f"option 'table' is {self.table!r}; write namespace.table, for example shop.counts"
            )


def build_delta_sink(options: Mapping[str, Any], folder: str) -> TableSink:
    """Raises ValueError, with a sentence, for options that cannot work."""
    read = read_options("the sink 'delta'", options, DeltaSinkOptions)
    delta.library()
    path = local_path(read.path)
    path = path if "://" in path else os.path.abspath(os.path.join(folder, path))
    if "://" not in path:
        delta.check_path(path)
    return TableSink(read, delta.DeltaLakeTable(path, read.config))


def build_iceberg_sink(options: Mapping[str, Any], folder: str = "") -> TableSink:
    """Raises ValueError, with a sentence, for options that cannot work."""
    read = read_options("the sink 'iceberg'", options, IcebergSinkOptions)
    iceberg.library()
    return TableSink(read, iceberg.IcebergTable(read.catalog, read.table))


class TableSink(ExternalSink):
    """A sink of any kind of table."""

    def __init__(self, options: TableSinkOptions, table: LakeTable) -> None:
        self._options = options
        self._table = table
        self.where = table.where
        self.flush_us = flush_us(options.flush)
        self.cut_records = options.batch_rows
        self.takes_retractions = options.mode != Mode.APPEND
        self.replaces_rows = options.mode == Mode.UPSERT
        self.committer: Committer | None = None

    def check(self, identity: str) -> None:
        """Check that the table exists, or create it, and that it has the columns that identify
        rows. Raises SetupError."""
        try:
            version = self._looked()
        except UnavailableError as ex:
            raise SetupError(str(ex)) from ex
        if missing := [
            name for name in self._options.identity() if name not in version.schema.names
        ]:
            raise SetupError(f"{self.where} has no column {missing[0]!r}, which option 'by' names")

    def check_fields(self, fields: Sequence[str]) -> None:
        """Check that every field has a column, and every required column a field. Raises
        SetupError."""
        schema, options = self._looked().schema, self._options
        mark = [options.mark] if options.mode == Mode.CHANGELOG else []
        added = [
            *mark,
            *(["key"] if options.with_key else []),
            *(["timestamp"] if options.with_timestamp else []),
        ]
        if strange := [name for name in (*fields, *added) if name not in schema.names]:
            hint = did_you_mean(strange[0], schema.names)
            raise SetupError(
                f"the rows have a field {strange[0]!r}, and {self.where} no such column{hint}"
            )
        if empty := [
            each.name for each in schema if not each.nullable and each.name not in (*fields, *added)
        ]:
            raise SetupError(
                f"the column {empty[0]!r} of {self.where} must have a value, and the rows have no"
                f" such field{did_you_mean(empty[0], list(fields))}; known: {', '.join(fields)}"
            )

    def target(self, owner: Owner) -> TableTarget:
        committer = self.committer or committer_of(self._table)
        return TableTarget(self._options, committer, owner)

    def _looked(self) -> TableVersion:
        try:
            return self._table.look()
        except SetupError:
            if not self._options.fields:
                raise
        with under_users_umask():
            self._table.create(self._options.schema())
        return self._table.look()


class TableTarget(ExternalTarget):
    """The table for one owner of a shard."""

    def __init__(self, options: TableSinkOptions, committer: Committer, owner: Owner) -> None:
        self._options = options
        self._committer = committer
        self._owner = owner

    def fence(self) -> int:
        return self._committer.claim(self._owner)

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        self._committer.write(self._owner, number, lambda version: self._prepared(version, records))

    def _prepared(self, version: TableVersion, records: Sequence[SinkRecord]) -> PreparedRows:
        options = self._options
        if options.mode == Mode.UPSERT:
            return self._upserted(version, records)
        if options.mode == Mode.CHANGELOG:
            rows = change_rows(records, options.with_key, options.with_timestamp, options.mark)
        else:
            rows = rows_of(records, options.with_key, options.with_timestamp)
        return PreparedRows(_fitting(version, rows))

    def _upserted(self, version: TableVersion, records: Sequence[SinkRecord]) -> PreparedRows:
        """The current rows at the end of the batch, and the identities without one."""
        by = self._options.identity()
        changes = changes_of(records)
        plain = [
            SinkRecord(change.record.key, change.row, change.record.timestamp) for change in changes
        ]
        rows = rows_of(plain, self._options.with_key, self._options.with_timestamp)
        table = _fitting(version, rows, by)
        keys = [tuple(row.values()) for row in table.select(list(by)).to_pylist()]
        by_key = outcomes(changes, lambda change: keys[change.index])
        add = [outcome.row.index for outcome in by_key.values() if outcome.row is not None]
        removed = [
            keys.index(key)  # type: ignore[arg-type]
            for key, outcome in by_key.items()
            if outcome.row is None and outcome.gone
        ]
        retractions = [
            change for outcome in by_key.values() if outcome.row is None for change in outcome.backs
        ]
        removed += self._taken_back(version, table, retractions)
        # two retractions of one row remove it once
        removed = list({keys[index]: index for index in removed}.values())
        return PreparedRows(_taken(table, add), by, _taken(table, removed).select(list(by)))

    def _taken_back(
        self, version: TableVersion, table: pa.Table, retractions: Sequence[RowChange]
    ) -> list[int]:
        """The indexes of the retractions of earlier batches' rows whose row is still current."""
        if not retractions:
            return []
        by = list(self._options.identity())
        indexes = [change.index for change in retractions]
        old = _taken(table, indexes)
        standing = [_comparable(row) for row in version.standing(by, old.select(by))]
        return [
            index
            for index, row in zip(indexes, old.to_pylist(), strict=True)
            if _comparable(row) in standing
        ]


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a row in which NaN equals itself."""
    return {name: "NaN" if value != value else value for name, value in row.items()}


def _taken(table: pa.Table, indexes: Sequence[int]) -> pa.Table:
    return table.take(pa.array(indexes, pa.int64()))


def _fitting(
    version: TableVersion, rows: Sequence[Mapping[str, Any]], by: Sequence[str] = ()
) -> pa.Table:
    """The rows as a table of the sink's columns. Raises RowsRefusedError for rows that do not
    fit."""
    table, reasons = Columns(version.schema).table(rows)
    for index, row in enumerate(rows):
        for name in by:
            if row.get(name) is None:
                reasons.setdefault(index, f"the row has no {name!r}, which identifies it")
    if reasons:
        raise RowsRefusedError(reasons)
    return table
