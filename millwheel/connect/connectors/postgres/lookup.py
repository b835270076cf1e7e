"""Rows of PostgreSQL as a lookup: one query for all keys of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from millwheel.connect.connectors.external.meanings import RowToBlameError
from millwheel.connect.connectors.postgres import client
from millwheel.connect.connectors.postgres.client import one_query
from millwheel.connect.connectors.postgres.table import escaped, quoted
from millwheel.connect.connectors.postgres.values import moment
from millwheel.connect.lookups.base import Lookup, LookupKey, LookupRefusedError, NoAnswer
from millwheel.connect.options import Option, read_options
from millwheel.errors import MillwheelError, SetupError


class PostgresLookupOptions(msgspec.Struct, frozen=True):
    """Rows of PostgreSQL that belong to a record."""

    dsn: Annotated[
        str,
        Option(
            "postgresql://reader@db:5432/shop",
            text="a connection string of libpq, as URL or as `host=… user=…`",
        ),
    ]
    by: Annotated[str | list[str], Option("item", text="the columns that make the key")]
    table: Annotated[str, Option("items", text="the table to ask", default="this or `query`")] = ""
    query: Annotated[
        str,
        Option(
            "SELECT * FROM items WHERE NOT gone",
            text="one `select` whose rows are asked",
            default="this or `table`",
        ),
    ] = ""
    columns: Annotated[
        list[str], Option("[price, title]", text="the columns of the answer", default="all")
    ] = []

    def __post_init__(self) -> None:
        client.address_of(self.dsn)
        if bool(self.table) == bool(self.query):
            raise ValueError(
                "the lookup 'postgres' needs either the option 'table' or the option 'query'"
            )
        if self.query:
            one_query(self.query)
        if not self.by:
            raise ValueError("option 'by' names no column; write for example by: item")


def build_postgres_lookup(options: Mapping[str, Any], folder: str = "") -> PostgresRowLookup:
    """Raises ValueError for invalid options."""
    return PostgresRowLookup(read_options("the lookup 'postgres'", options, PostgresLookupOptions))


class KeyType(NamedTuple):
    """The type of a column of the key. ``name`` is in full and quoted: by their short names
    ``character`` and ``bit`` mean one letter and one bit in SQL, to which a cast cuts in silence.
    ``base`` is the short one."""

    name: str
    base: str


class PostgresRowLookup(Lookup):
    """Built by :func:`build_postgres_lookup`."""

    def __init__(self, options: PostgresLookupOptions) -> None:
        self._psycopg = client.library()
        self._options = options
        self._connection: Any = None
        self._statement: Any = None
        self._types: list[KeyType] = []
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
            raise SetupError(
                f"{self.where}: {client.words_of(ex)}. Check the options of the lookup"
            ) from None
        finally:
            connection.close()

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        try:
            if self._connection is None:
                self._connection = client.connect(self._options.dsn)
                self._statement = self._made(self._connection)
            columns = [
                [_text(key[at], kind) for key in keys] for at, kind in enumerate(self._types)
            ]
            rows = self._connection.execute(self._statement, columns).fetchall()
        except self._psycopg.Error as ex:
            raise self._in_words(ex) from None
        answers: list[Any] = [None] * len(keys)
        for number, row in rows:
            answered = answers[number - 1] is not None
            answers[number - 1] = (
                NoAnswer(f"{self.where} has several rows for this key") if answered else row
            )
        return answers

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _in_words(self, error: Any) -> MillwheelError:
        failure = client.in_words(error, self.where)
        if isinstance(failure, RowToBlameError):
            return LookupRefusedError(str(failure))
        self.close()
        return failure

    def _made(self, connection: Any) -> Any:
        """The query. Keys come as arrays of text, one for each column, which the server casts to
        the types of the columns. So the server can use an index on the columns, and its own error
        names a key that does not fit."""
        sql = self._psycopg.sql
        options = self._options
        # On lines of its own, because it may end with a comment; a percent sign is written twice
        # beside placeholders.
        rows = sql.SQL(
            f"(\n{escaped(one_query(options.query))}\n)" if options.query else quoted(options.table)
        )
        by = sql.SQL(", ").join(sql.Identifier("r", name) for name in self.by)
        looked = connection.execute(
            sql.SQL("SELECT {} FROM {} AS r WHERE %s LIMIT 0").format(by, rows), [False]
        )
        self._types = [_key_type(connection, column.type_code) for column in looked.description]
        chosen = sql.SQL(", ").join(sql.Identifier("r", name) for name in options.columns)
        answer = (
            sql.SQL("(SELECT x FROM (SELECT {}) AS x)").format(chosen)
            if options.columns
            else sql.SQL("r")
        )
        keys = [sql.Identifier(f"key{index}") for index in range(len(self.by))]
        return sql.SQL(
            "SELECT k.n, to_json({answer}) FROM unnest({arrays}) WITH ORDINALITY AS k({keys}, n) "
            "JOIN {rows} AS r ON ({by}) = ({ours})"
        ).format(
            answer=answer,
            arrays=sql.SQL(", ").join(
                sql.SQL("%s::text[]::{}[]").format(sql.SQL(name)) for name, _ in self._types
            ),
            keys=sql.SQL(", ").join(keys),
            rows=rows,
            by=by,
            ours=sql.SQL(", ").join(sql.SQL("k.{}").format(key) for key in keys),
        )


def _key_type(connection: Any, oid: int) -> KeyType:
    """The type of a column, for keys that are compared with it."""
    (row,) = connection.execute(
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname), t.typname FROM pg_type t "
        "JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s",
        [oid],
    ).fetchall()
    return KeyType(*row)


def _text(value: Any, kind: KeyType) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and kind.base in ("int2", "int4", "int8"):
        return str(int(value))
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and kind.base in ("timestamptz", "timestamp", "date")
    ):
        return moment(value)  # as the sink writes it
    return msgspec.json.encode(value).decode()
