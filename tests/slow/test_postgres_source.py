"""Tables and queries as a source, read from a real server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.connect.connectors.postgres.source import build_postgres_source
from millwheel.connect.sources.base import Source
from millwheel.errors import SetupError
from millwheel.testing.contracts import SourceContract
from tests.servers.postgres import PASSWORD, Server

pytestmark = pytest.mark.slow
ROWS = 23


@pytest.fixture(scope="module", autouse=True)
def _orders(server: Server) -> None:
    server.sql(
        # Tests that run side by side may leave this module and come back to it, with the same
        # server.
        "drop table if exists orders; create table orders (id bigint primary key, at timestamptz"
        " unique, amount float8, tags text[], doc jsonb);insert into orders select 3 * n - 40,"
        " '2026-01-01T00:00:00Z'::timestamptz + n * interval '1.5 s', n / 2.0, array['a', 'b'],"
        f" jsonb_build_object('n', n) from generate_series(1, {ROWS}) n"
    )


class OfOrders(SourceContract):
    options: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def _ready(self, server: Server) -> None:
        self._dsn = server.dsn

    def source(self) -> Source:
        return build_postgres_source({"dsn": self._dsn, "page_rows": 5, **self.options})

    def values(self) -> list[Any]:
        return [
            {
                "id": 3 * n - 40,
                "at": f"2026-01-01T00:00:{n * 1.5:04.1f}+00:00".replace(".0+", "+"),
                "amount": n / 2 if n % 2 else n // 2,
                "tags": ["a", "b"],
                "doc": {"n": n},
            }
            for n in range(1, ROWS + 1)
        ]


class TestATableByItsKey(OfOrders):
    options = {"table": "orders", "order_by": "id"}


class TestAQueryByTimesInParts(OfOrders):
    options = {
        "query": "select * from orders where amount >= 0;",
        "order_by": "at",
        "partitions": 3,
    }


def source(server: Server, **options: Any) -> Source:
    return build_postgres_source({"dsn": server.dsn, **options})


def test_rows_that_come_and_go_move_no_other(server: Server) -> None:
    server.sql(
        "create table moving (id int primary key); insert into moving select 2 * n from"
        " generate_series(1, 9) n"
    )
    read = source(server, table="moving", order_by="id", page_rows=2)
    (partition,) = read.partitions()
    server.sql("insert into moving values (1), (5), (21); delete from moving where id = 8")
    reader = read.open(partition)
    found: dict[int, int] = {}
    position = 0
    while True:
        chunk = reader.read(position, 3)
        found |= dict(zip(chunk.positions, (value["id"] for value in chunk.values), strict=True))
        position = chunk.next_position
        if chunk.finished:
            break
    reader.close()
    assert found == {number - 1: number for number in (2, 4, 5, 6, 10, 12, 14, 16, 18)}


def test_an_empty_table_ends_at_once(server: Server) -> None:
    server.sql("create table nothing (id int)")
    read = source(server, table="nothing", order_by="id")
    reader = read.open(read.partitions()[0])
    while not reader.read(0, 10).finished:
        pass
    reader.close()


def test_what_is_no_record_of_the_declared_types_is_a_reject(server: Server) -> None:
    class Order(msgspec.Struct):
        id: int
        amount: int

    for form in ({"schema": Order}, {"fields": {"amount": "int"}}):
        read = build_postgres_source(
            {"dsn": server.dsn, "table": "orders", "order_by": "id"}, **form
        )
        reader = read.open(read.partitions()[0])
        positions, rejects, position = [], [], 0
        while True:
            chunk = reader.read(position, 100)
            positions += chunk.positions
            rejects += [reject.position for reject in chunk.rejects]
            position = chunk.next_position
            if chunk.finished:
                break
        reader.close()
        assert len(positions) + len(rejects) == ROWS
        assert rejects[:2] == [1, 7]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "order", "order_by": "id"}, 'relation "order" does not exist'),
        ({"table": "orders", "order_by": "ids"}, "has no column 'ids' there; did you mean 'id'?"),
        (
            {"query": "select id, amount::text as a from orders", "order_by": "a"},
            "which is text; a position needs",
        ),
        ({"query": "select 1 as id from orders", "order_by": "id"}, "has a value more than once"),
        ({"query": "select null::int as id from orders", "order_by": "id"}, "is null in some rows"),
        ({"query": "selct 1", "order_by": "id"}, "syntax error"),
        (
            {"query": "insert into orders (id) values (1) returning id", "order_by": "id"},
            "syntax error",
        ),
    ],
)
def test_what_cannot_be_read_is_a_sentence(
    server: Server, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(SetupError) as caught:
        source(server, **options).partitions()
    assert told in str(caught.value)


def test_a_wrong_password_is_a_sentence_without_it(server: Server) -> None:
    dsn = server.dsn.replace(PASSWORD, "hush-hush")
    with pytest.raises(SetupError, match="password authentication failed") as caught:
        build_postgres_source({"dsn": dsn, "table": "orders", "order_by": "id"}).partitions()
    assert "hush" not in str(caught.value)
