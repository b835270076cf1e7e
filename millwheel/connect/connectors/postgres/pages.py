"""Pages of a table or query, in the order of a column of whole numbers or times; and the options of
the source, which name the table or query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from millwheel.connect.connectors.external.meanings import RowToBlameError, given_up
from millwheel.connect.connectors.postgres import client
from millwheel.connect.connectors.postgres.client import address_of, one_query
from millwheel.connect.connectors.postgres.table import quoted, quoted_name
from millwheel.connect.options import Option, did_you_mean
from millwheel.errors import MillwheelError, SetupError


class PostgresSourceOptions(msgspec.Struct, frozen=True):
    """Rows of a table or a query of PostgreSQL."""

    dsn: Annotated[
        str,
        Option(
            "postgresql://user:${secret:PG_PASSWORD}@db:5432/results",
            text=(
                "a connection string of libpq, as URL or as `host=… user=…`; write passwords"
                " as `${secret:NAME}`"
            ),
        ),
    ]
    order_by: Annotated[
        str,
        Option(
            "id",
            text=(
                "a column of whole numbers or times, unique and never null; an index on it"
                " makes pages cheap"
            ),
        ),
    ]
    table: Annotated[
        str | None, Option("orders", text="the table to read", default="this or `query`")
    ] = None
    query: Annotated[
        str | None,
        Option(
            "select id, placed_at, amount from orders where amount > 0",
            text="one `select` to read",
            default="this or `table`",
        ),
    ] = None
    partitions: Annotated[
        int,
        Option(
            "4",
            text=(
                "the values of `order_by` are divided into this many partitions of equal"
                " width, which are read in parallel"
            ),
        ),
    ] = 1
    page_rows: Annotated[
        int, Option("5000", text="rows per page; a thread fetches two pages ahead")
    ] = 5_000

    def __post_init__(self) -> None:
        address_of(self.dsn)
        if (self.table is None) == (self.query is None):
            raise ValueError("the source 'postgres' needs one of the options 'table' and 'query'")
        if self.query is not None:
            one_query(self.query)
        if not 1 <= self.partitions <= 1_000:
            raise ValueError(
                f"option 'partitions' is {self.partitions}; write a number from 1 to 1000"
            )
        if not 1 <= self.page_rows <= 100_000:
            raise ValueError(
                f"option 'page_rows' is {self.page_rows}; write how many rows are asked for at once"
            )


_NUMBERS, _TIMES = ("int2", "int4", "int8"), ("timestamptz", "timestamp", "date")


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as (key, JSON). ``last``: no more rows follow up to the end."""

    rows: list[tuple[int, bytes]]
    last: bool


class Pages:
    """Reads pages from the server. For one thread at a time."""

    def __init__(self, options: PostgresSourceOptions) -> None:
        self._options = options
        self.where = client.address_of(options.dsn)
        self._psycopg = client.library()
        self._connection: Any = None
        # On lines of its own: a query may end with a comment.
        what = (
            quoted(options.table)
            if options.table is not None
            else f"(\n{one_query(options.query or '')}\n)"
        )
        self._from = f"from {what} as given"
        self._column = f"given.{quoted_name(options.order_by)}"
        self._key, self._form = self._column, "{}"

    def span(self) -> tuple[int, int] | None:
        """The lowest and the highest key; None if there are no rows. Raises SetupError, with a
        sentence."""
        try:
            connection = self._connected()
            return self._ends(connection)
        except self._psycopg.Error as ex:
            self.close()
            if ex.sqlstate is None or ex.sqlstate[:2] in ("28", "08", "3D"):
                raise client.unreachable(ex, self.where) from None
            raise SetupError(f"{self.where}: {client.words_of(ex)}") from None

    def page(self, after: int, until: int) -> Page:
        """Rows with a key greater than ``after`` and at most ``until``. Raises the errors of
        ``client.in_words``."""
        count = self._options.page_rows
        try:
            connection = self._connected()
            rows = connection.execute(
                f"select {self._key}, to_json(given)::text {self._from} where {self._value(after)}"
                f" < {self._column} and {self._column} <= {self._value(until)} order by"
                f" {self._column} limit {count}"
            ).fetchall()
        except self._psycopg.Error as ex:
            raise self._given_up(ex) from ex
        return Page([(int(key), text.encode()) for key, text in rows], len(rows) < count)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Any:
        if self._connection is None:
            connection = client.connect(self._options.dsn)
            try:
                # The query is the user's, and may call functions that write.
                connection.execute("set default_transaction_read_only to on")
                self._look(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _look(self, connection: Any) -> None:
        """Find the type of the column."""
        name = self._options.order_by
        described = connection.execute(f"select * {self._from} limit 0").description
        types = {
            column.name: connection.adapters.types.get(column.type_code) for column in described
        }
        if name not in types:
            raise SetupError(
                f"{self.where} has no column {name!r} there{did_you_mean(name, list(types))}"
            )
        column_type = types[name]
        kind = "of another kind" if column_type is None else column_type.name
        if kind in _NUMBERS:
            self._key, self._form = self._column, "{}"
        elif kind in _TIMES:
            self._key = f"round(extract(epoch from {self._column}) * 1000000)::bigint"
            self._form = "('epoch'::timestamptz + {} * interval '1 microsecond')" + f"::{kind}"
        else:
            raise SetupError(
                f"option 'order_by' is the column {name}, which is {kind}; a position needs whole"
                " numbers or times: give the query a column of that kind, for example row_number()"
                " over (order by …)"
            )

    def _value(self, key: int) -> str:
        return self._form.format(f"({key})::bigint" if self._form != "{}" else f"({key})")

    def _ends(self, connection: Any) -> tuple[int, int] | None:
        keys = f"(select {self._key} as k {self._from}) keys"
        counted = f"select min(k), max(k), count(k), count(*), count(distinct k) from {keys}"
        low, high, with_key, rows, distinct = connection.execute(counted).fetchone()
        if with_key < rows or distinct < rows:
            wrong = "is null in some rows" if with_key < rows else "has a value more than once"
            raise SetupError(
                f"{self.where}: the column {self._options.order_by} (order_by) {wrong}: positions"
                " need it"
            )
        return None if low is None else (int(low), int(high))

    def _given_up(self, error: Any) -> MillwheelError:
        self.close()
        failure = client.in_words(error, self.where)
        return given_up(failure) if isinstance(failure, RowToBlameError) else failure
