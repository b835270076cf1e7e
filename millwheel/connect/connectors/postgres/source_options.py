"""The options below ``postgres:`` of a source."""

from __future__ import annotations

from typing import Annotated

import msgspec

from millwheel.connect.connectors.postgres.client import address_of, one_query
from millwheel.connect.options import Option


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
