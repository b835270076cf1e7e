"""The options below ``postgres:`` of a source."""

from __future__ import annotations

import msgspec

from millwheel.connectors.postgres.client import address_of
from millwheel.connectors.postgres.queries import one_query

EXAMPLES = {
    "dsn": "dsn: postgresql://user:${secret:PG_PASSWORD}@db:5432/results",
    "table": "table: orders",
    "query": "query: select id, placed_at, amount from orders where amount > 0",
    "order_by": "order_by: id",
    "partitions": "partitions: 4",
    "page_rows": "page_rows: 5000",
}


class PostgresSourceOptions(msgspec.Struct, frozen=True):
    """``table`` or ``query`` names the input. ``order_by`` is a column of unique whole numbers or times: its value is
    the position of a row. Its values are divided into ``partitions`` of equal width."""

    dsn: str
    order_by: str
    table: str | None = None
    query: str | None = None
    partitions: int = 1
    page_rows: int = 5_000

    def __post_init__(self) -> None:
        address_of(self.dsn)
        if (self.table is None) == (self.query is None):
            raise ValueError("the source 'postgres' needs one of the options 'table' and 'query'")
        if self.query is not None:
            one_query(self.query)
        if not 1 <= self.partitions <= 1_000:
            raise ValueError(f"option 'partitions' is {self.partitions}; write a number from 1 to 1000")
        if not 1 <= self.page_rows <= 100_000:
            raise ValueError(f"option 'page_rows' is {self.page_rows}; write how many rows are asked for at once")
