"""A table of PostgreSQL as a sink. See ``target.py`` for how rows appear once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import ExternalTarget, Owner
from millwheel.connect.connectors.postgres import client
from millwheel.connect.connectors.postgres.sink_options import PostgresSinkOptions, identity_of
from millwheel.connect.connectors.postgres.table import (
    DatabaseTable,
    as_written,
    check_by,
    create_statement,
    look_at,
    quoted,
)
from millwheel.connect.connectors.postgres.target import PostgresTarget
from millwheel.connect.connectors.postgres.text_rows import OF_WINDOWS
from millwheel.connect.options import did_you_mean, read_options
from millwheel.connect.sinks.base import flush_us
from millwheel.connect.sinks.result_rows import Mode
from millwheel.errors import SetupError

_BATCHES = (
    "name text primary key, number bigint not null, token bigint not null, written_at timestamptz"
)


def build_postgres_sink(options: Mapping[str, Any], folder: str = "") -> PostgresTableSink:
    """Raises ValueError for invalid options."""
    return PostgresTableSink(read_options("the sink 'postgres'", options, PostgresSinkOptions))


class PostgresTableSink(ExternalSink):
    """Built by :func:`build_postgres_sink`."""

    def __init__(self, options: PostgresSinkOptions) -> None:
        self._options = options
        self._database_table: DatabaseTable | None = None
        self.where = client.address_of(options.dsn)
        self.flush_us = flush_us(options.flush)
        self.cut_records = options.cut_records
        self.takes_retractions = Mode(options.mode) is not Mode.APPEND
        self.replaces_rows = Mode(options.mode) is Mode.UPSERT

    def target(self, owner: Owner) -> ExternalTarget:
        return PostgresTarget(self._options, owner, self.where)

    def check(self, identity: str) -> None:
        """Check that the table exists and fits; the table of batches is created if needed. Raises
        SetupError."""
        psycopg = client.library()
        try:
            connection = client.connect(self._options.dsn)
        except psycopg.Error as ex:
            raise client.unreachable(ex, self.where) from None
        with connection:
            try:
                self._database_table = self._table(connection)
                self._check_table(self._database_table)
                self._make_batches(connection)
            except psycopg.Error as ex:
                raise SetupError(f"{self.where}: {client.words_of(ex)}") from None

    def check_fields(self, fields: Sequence[str]) -> None:
        """Check that every field has a column, and every column without a default a field. Raises
        SetupError."""
        table, options = self._database_table, self._options
        if table is None:
            return
        if not options.columns:
            for name in fields:
                if name not in table.columns and name not in OF_WINDOWS:
                    raise SetupError(
                        f"the rows have a field {name!r}, and the table {table.name} of"
                        f" {self.where} no such column{did_you_mean(name, list(table.columns))};"
                        " add it, or name the columns to write in option 'columns'"
                    )
        written = {*(options.columns or fields), *self._added()}
        for name, column in table.columns.items():
            if column.required and name not in written:
                raise SetupError(
                    f"the column {name!r} of the table {table.name} of {self.where} must have a"
                    f" value, and the rows have no such field{did_you_mean(name, list(fields))};"
                    f" known: {', '.join(fields)}"
                )

    def _added(self) -> list[str]:
        """The columns that the sink fills itself."""
        options = self._options
        mark = [options.mark] if options.mode == Mode.CHANGELOG.value else []
        return [
            *mark,
            *(["key"] if options.with_key else []),
            *(["timestamp"] if options.with_timestamp else []),
        ]

    def _table(self, connection: Any) -> DatabaseTable:
        options = self._options
        table = look_at(connection, options.table)
        if table is not None:
            return table
        if options.create:
            connection.execute(
                create_statement(options.table, options.create, identity_of(options))
            )
            new_table = look_at(connection, options.table)
            assert new_table is not None
            return new_table
        raise SetupError(
            f"{self.where} has no table {options.table!r}{self._others(connection)}."
            f" {self._advice()}"
        )

    def _others(self, connection: Any) -> str:
        """The end of the sentence: tables with a similar name."""
        rows = connection.execute(
            "select schemaname = any (current_schemas(false)), schemaname, tablename from pg_tables"
            " where schemaname not in ('pg_catalog', 'information_schema') order by 1 desc, 2, 3"
            " limit 20"
        ).fetchall()
        names = [
            as_written(name) if near else f"{as_written(schema)}.{as_written(name)}"
            for near, schema, name in rows
        ]
        names = [name for name in names if name != self._options.batches_table]
        return did_you_mean(self._options.table, names) if names else ""

    def _advice(self) -> str:
        options = self._options
        names = [
            *identity_of(options),
            *(name for name in options.columns if name not in identity_of(options)),
        ]
        columns = dict.fromkeys(names, "TYPE") or {"COLUMN": "TYPE"}
        example = create_statement(options.table, columns, identity_of(options))
        return f"Create it ({example}), or write the option 'create' with its columns and types"

    def _check_table(self, table: DatabaseTable) -> None:
        options = self._options
        if table.refuses:
            raise SetupError(
                f"{table.name} of {self.where} is {table.refuses} that takes no rows; write to a"
                " table, or give the view an INSTEAD OF INSERT trigger"
            )
        for name in (*identity_of(options), *options.columns, *options.create, *self._added()):
            column = table.columns.get(name)
            if column is None:
                raise SetupError(
                    f"the table {table.name} of {self.where} has no column {name!r}"
                    f"{did_you_mean(name, list(table.columns))}"
                )
            if column.generated:
                raise SetupError(
                    f"the column {name} of the table {table.name} is generated: it cannot be"
                    " written"
                )
        if identity_of(options):
            check_by(table, identity_of(options))

    def _make_batches(self, connection: Any) -> None:
        name = self._options.batches_table
        if look_at(connection, name) is not None:
            return
        statement = f"create table if not exists {quoted(name)} ({_BATCHES})"
        try:
            connection.execute(statement)
        except client.library().errors.UniqueViolation:  # another run creates it at the same moment
            return
        except client.library().Error as ex:
            raise SetupError(
                f"{self.where} does not create the table {name}, in which the sink notes what it"
                f" has written: {client.words_of(ex)}. Create it: {statement}"
            ) from None
