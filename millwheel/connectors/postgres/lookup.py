"""Rows of PostgreSQL as a lookup: one query for all keys of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millwheel.connectors.postgres import client
from millwheel.errors import MillwheelError, SetupError
from millwheel.lookups.base import Lookup, LookupKey, LookupRefusedError, NoAnswer
from millwheel.options import read_options

_EXAMPLES = {
    "dsn": "dsn: postgresql://user:${secret:PG_PASSWORD}@db:5432/shop",
    "table": "table: items",
    "query": "query: SELECT * FROM items WHERE NOT gone",
    "by": "by: item",
    "columns": "columns: [price, title]",
}


class PostgresLookupOptions(msgspec.Struct, frozen=True):
    """``by`` names the columns that make the key, of ``table`` or of the rows of ``query``; ``columns`` those of the
    answer (empty: all)."""

    dsn: str
    by: str | list[str]
    table: str = ""
    query: str = ""
    columns: list[str] = []

    def __post_init__(self) -> None:
        client.address_of(self.dsn)
        if bool(self.table) == bool(self.query):
            raise ValueError("the lookup 'postgres' needs either the option 'table' or the option 'query'")
        if not self.by:
            raise ValueError("option 'by' names no column; write for example by: item")


def build_postgres_lookup(options: Mapping[str, Any]) -> PostgresLookup:
    """Raises ValueError for invalid options."""
    return PostgresLookup(read_options("the lookup 'postgres'", options, PostgresLookupOptions, _EXAMPLES))


class PostgresLookup(Lookup):
    """Built by :func:`build_postgres_lookup`."""

    def __init__(self, options: PostgresLookupOptions) -> None:
        self._psycopg = client.library()
        self._options = options
        self._connection: Any = None
        self._statement: Any = None
        self.where = client.address_of(options.dsn)
        self.by = (options.by,) if isinstance(options.by, str) else tuple(options.by)

    def check(self) -> None:
        """Check that the table exists and has the columns. Raises SetupError."""
        try:
            connection = client.connect(self._options.dsn)
        except self._psycopg.Error as ex:
            raise client.unreachable(ex, self.where) from None
        try:
            connection.execute(self._made(connection), [[] for _ in self.by])
        except self._psycopg.Error as ex:
            raise SetupError(f"{self.where}: {client.says(ex)}. Check the options of the lookup") from None
        finally:
            connection.close()

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        columns = [[_text(key[index]) for key in keys] for index in range(len(self.by))]
        try:
            if self._connection is None:
                self._connection = client.connect(self._options.dsn)
                self._statement = self._made(self._connection)
            rows = self._connection.execute(self._statement, columns).fetchall()
        except self._psycopg.Error as ex:
            raise self._in_words(ex) from None
        answers: list[Any] = [None] * len(keys)
        for number, row in rows:
            known = answers[number - 1] is not None
            answers[number - 1] = NoAnswer(f"{self.where} has several rows for this key") if known else row
        return answers

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _in_words(self, error: Any) -> MillwheelError:
        if client.refuses_row(error):
            return LookupRefusedError(f"{self.where}: {client.says(error)}")
        self.close()
        return client.in_words(error, self.where)

    def _made(self, connection: Any) -> Any:
        """The query. Keys come as arrays of text, one for each column, which the server casts to the types of the
        columns. So the server can use an index on the columns, and its own error names a key that does not fit."""
        sql = self._psycopg.sql
        options = self._options
        rows = (
            sql.SQL("({})").format(sql.SQL(options.query))
            if options.query
            else sql.Identifier(*options.table.split("."))
        )
        by = sql.SQL(", ").join(sql.Identifier("r", name) for name in self.by)
        looked = connection.execute(sql.SQL("SELECT {} FROM {} AS r LIMIT 0").format(by, rows))
        types = [_type_name(connection, column.type_code) for column in looked.description]
        chosen = sql.SQL(", ").join(sql.Identifier("r", name) for name in options.columns)
        answer = sql.SQL("(SELECT x FROM (SELECT {}) AS x)").format(chosen) if options.columns else sql.SQL("r")
        keys = [sql.Identifier(f"key{index}") for index in range(len(self.by))]
        return sql.SQL(
            "SELECT k.n, to_json({answer}) FROM unnest({arrays}) WITH ORDINALITY AS k({keys}, n) "
            "JOIN {rows} AS r ON ({by}) = ({ours})"
        ).format(
            answer=answer,
            arrays=sql.SQL(", ").join(sql.SQL("%s::text[]::{}[]").format(sql.SQL(name)) for name in types),
            keys=sql.SQL(", ").join(keys),
            rows=rows,
            by=by,
            ours=sql.SQL(", ").join(sql.SQL("k.{}").format(key) for key in keys),
        )


def _type_name(connection: Any, oid: int) -> str:
    (row,) = connection.execute("SELECT format_type(%s, NULL)", [oid]).fetchall()
    return str(row[0])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
