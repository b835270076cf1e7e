"""What a target does when the server does not answer; tests/slow/test_postgres_sink.py has the
rest."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
import pytest

from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.postgres.sink_options import PostgresSinkOptions
from millwheel.connect.connectors.postgres.table import (
    DatabaseTable,
    check_by,
    create_statement,
    quoted,
)
from millwheel.connect.connectors.postgres.target import PostgresTarget
from millwheel.errors import SetupError, UnavailableError


class Broken:
    closed = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def transaction(self) -> Any:
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError("gone"), UnavailableError),
        (psycopg.errors.UndefinedTable("no such table"), SetupError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("call", ["fence", "write"])
def test_a_connection_that_failed_is_given_up(
    error: Exception, kind: type[BaseException], call: str
) -> None:
    options = msgspec.convert({"dsn": "host=db", "table": "t"}, PostgresSinkOptions)
    target = PostgresTarget(options, Owner("root/s", 1), "PostgreSQL at db")
    connections = [Broken(error), Broken(error)]
    waiting = list(connections)
    target.connect = lambda: waiting.pop()  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(kind):
            target.fence() if call == "fence" else target.write(0, [])
    assert all(connection.closed for connection in connections)


# table.py


def test_names_are_quoted_part_by_part() -> None:
    assert quoted('billing.my "table"') == '"billing"."my ""table"""'


def test_a_table_is_created_with_the_key_that_identifies_its_rows() -> None:
    made = create_statement("ctr", {"ad": "bigint", "n": "float8"}, ["ad"])
    assert made == 'create table if not exists "ctr" ("ad" bigint, "n" float8, primary key ("ad"))'
    assert create_statement("t", {"n": "int"}, []) == 'create table if not exists "t" ("n" int)'


def test_the_key_may_have_its_columns_in_any_order() -> None:
    table = DatabaseTable("t", {}, (frozenset(["a"]), frozenset(["b", "c"])))
    check_by(table, ["c", "b"])
    with pytest.raises(SetupError, match="no unique index on \\(b\\)"):
        check_by(table, ["b"])
