"""A table as a sink: what a query of a real server sees, whoever writes when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from millwheel import Retraction
from millwheel.connect.connectors.postgres import client, statements
from millwheel.connect.connectors.postgres.sink import build_postgres_sink
from millwheel.connect.connectors.postgres.target import PostgresTarget
from millwheel.connect.sinks.base import BatchRefusedError, Sink, SinkBatch, SinkRecord
from millwheel.errors import SetupError, UnavailableError
from millwheel.testing.contracts import ExternalSinkContract, Outside, SinkWorld, WatchedClient
from millwheel.tools.testing.contracts.worlds import IDENTITY
from tests.servers.postgres import PASSWORD, Server

pytestmark = pytest.mark.slow
_names = (f"t{number}" for number in itertools.count())


class WatchedConnection(WatchedClient):
    """Statements, and the ends of transactions, are calls to the outside."""

    def __init__(self, connection: Any, outside: Outside) -> None:
        super().__init__(connection, outside, ["execute", "executemany", "copy"], made=["cursor"])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        transaction = self._inner.transaction()
        transaction.__enter__()
        try:
            yield
        except BaseException as ex:
            transaction.__exit__(type(ex), ex, ex.__traceback__)
            raise
        self._outside.call("commit", transaction.__exit__, None, None, None)


class TableWorld(SinkWorld):
    """A new table for each world; ``mode`` is that of the sink."""

    def __init__(self, server: Server, mode: str) -> None:
        self._server, self._name, self._connections = server, next(_names), []
        self._options: dict[str, Any] = {"dsn": server.dsn, "table": self._name, "mode": mode}
        key = "primary key (batch, row)" if mode == "upsert" else "unique (batch, row)"
        if mode == "upsert":
            self._options["by"] = ["batch", "row"]
        server.sql(
            f"create table {self._name} (came serial, batch int, row int check (row <> 13), note"
            f" jsonb, {key})"
        )
        made = build_postgres_sink(self._options)
        made.check(IDENTITY)

    def sink(self, outside: Outside) -> Sink:
        made = build_postgres_sink(self._options)
        made.identity = f"root-of-{self._name}"
        plain = made.target

        def target(owner: Any) -> Any:
            found = plain(owner)
            assert isinstance(found, PostgresTarget)
            connect = found.connect

            def kept() -> Any:
                connection = connect()
                self._connections.append(connection)
                return connection

            found.connect = lambda: WatchedConnection(outside.call("connect", kept), outside)  # type: ignore[method-assign]
            return found

        made.target = target  # type: ignore[method-assign]
        return made

    def value(self, batch: int, row: int) -> Any:
        return {"batch": batch, "row": row, "note": {"of": [batch]}}

    def rows(self) -> list[Any]:
        found = self._server.sql(f"select batch, row, note from {self._name} order by came")
        return [{"batch": batch, "row": row, "note": note} for batch, row, note in found]

    def refused(self) -> tuple[Any, str]:
        return {"batch": 0, "row": 13, "note": None}, "violates check constraint"

    def lost(self) -> Exception:
        return psycopg.OperationalError("server closed the connection unexpectedly")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class OfATable(ExternalSinkContract):
    mode = "append"
    bulk = 1000

    @pytest.fixture(autouse=True)
    def _ready(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        monkeypatch.setattr(client, "LOCK_MS", 20)
        monkeypatch.setattr(statements, "BULK_ROWS", self.bulk)

    def world(self) -> SinkWorld:
        return TableWorld(self._server, self.mode)


class TestAppendByStatements(OfATable):
    every = 3


class TestUpsertByCopy(OfATable):
    mode = "upsert"
    bulk = 1
    every = 5


_writers: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _writers:
        _writers.pop().close()


class TableShard:
    """One shard of a sink on a new table, and its writer."""

    def __init__(self, server: Server, form: str, **options: Any) -> None:
        self.server, self.table, self._number = server, next(_names), 0
        server.sql(f"create table {self.table} ({form})")
        self.sink = build_postgres_sink({"dsn": server.dsn, "table": self.table, **options})
        self.sink.check("r")
        self.sink.identity = self.table
        self.writer = self.sink.open("sink.out-0", 1)
        _writers.append(self.writer)

    def write(self, *values: Any) -> list[tuple[Any, str]]:
        """One batch; what is refused of it."""
        records = [SinkRecord("k", value, 7) for value in values]
        committable, refused = self.writer.prepare(SinkBatch(self._number, "1-1", records)), []
        self._number += 1
        while True:
            try:
                self.writer.publish(committable)
            except BatchRefusedError as ex:
                refused += [(each.record.value, each.reason) for each in ex.refused]
                committable = ex.committable
            else:
                return refused

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.server.sql(f"select {columns} from {self.table} order by 1")


@pytest.mark.parametrize("bulk", [1, 1000])
def test_the_latest_row_of_each_identity_stands(
    server: Server, bulk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "BULK_ROWS", bulk)
    shard = TableShard(
        server, "ad int, n float, tags jsonb, raw json, primary key (ad)", mode="upsert", by="ad"
    )

    def row(ad: int, n: float) -> dict[str, Any]:
        return {"ad": ad, "n": n, "tags": {"n": n}, "raw": [n]}

    assert not shard.write(row(1, 1.5), row(2, 1), row(1, 2.5), row(3, 1), row(3, float("nan")))
    assert shard.rows("ad, n::text") == [(1, "2.5"), (2, "1"), (3, "NaN")]
    assert not shard.write(
        Retraction(row(1, 1.5)), Retraction(row(2, 1)), Retraction(row(3, float("nan"))), row(4, 0)
    )
    assert shard.rows("ad, n") == [(1, 2.5), (4, 0.0)]
    assert not shard.write(row(5, 1), Retraction(row(5, 1)), Retraction(row(4, 0)), row(4, 9))
    assert shard.rows("ad, n") == [(1, 2.5), (4, 9.0)]


def test_rows_without_a_column_leave_its_value_as_it_is(server: Server) -> None:
    shard = TableShard(
        server, "ad int primary key, n int default 7, note text", mode="upsert", by=["ad"]
    )
    assert not shard.write({"ad": 1, "note": "a"}, {"ad": 1, "n": 8}, {"ad": 2})
    assert shard.rows() == [(1, 8, "a"), (2, 7, None)]


def test_changes_are_rows_with_a_mark(server: Server) -> None:
    shard = TableShard(server, "came serial, op text, n int", mode="changelog", mark="op")
    assert not shard.write({"n": 5}, Retraction({"n": 5}))
    assert shard.rows("came, op, n") == [(1, "+", 5), (2, "-", 5)]


def test_values_become_what_the_columns_hold(server: Server) -> None:
    columns = (
        "n bigint, amount numeric(10,2), at timestamptz, day date, local timestamp, ok boolean,"
        " words text[], grid int[][], doc jsonb, note text, data bytea, moments timestamptz[]"
    )
    us = 1_767_258_000_123_456
    value = {
        "n": 3.0,
        "amount": "12.345",
        "at": us,
        "day": us,
        "local": us,
        "ok": True,
        "words": ['a"b', "c,d", "", "NULL", "\\"],
        "grid": [[1, 2], [3, 4]],
        "doc": {"a": [1, None, "é"]},
        "note": "tab\tline\nback\\slash",
        "data": b"\x00\xff",
        "moments": [us],
    }
    for bulk in (1, 1000):
        statements.BULK_ROWS, plain = bulk, statements.BULK_ROWS
        shard = TableShard(server, columns)
        try:
            assert not shard.write(value, {"n": None})
        finally:
            statements.BULK_ROWS = plain
        first, second = shard.rows()
        assert [str(first[0]), str(first[1]), first[5:10]] == [
            "3",
            "12.35",
            (True, value["words"], value["grid"], value["doc"], value["note"]),
        ]
        assert first[10] == b"\x00\xff"
        assert [each.isoformat() for each in first[2:5]] == [
            "2026-01-01T09:00:00.123456+00:00",
            "2026-01-01",
            "2026-01-01T09:00:00.123456",
        ]
        assert first[11] == [first[2]]
        assert second == (None,) * 12


def test_rows_that_do_not_fit_are_refused_in_the_words_of_the_server(server: Server) -> None:
    shard = TableShard(server, "n smallint not null, name varchar(3), unique (name)")
    good = {"n": 1, "name": "abc"}
    refused = shard.write(
        good,
        {"n": 100_000},
        {"n": "many"},
        {"name": "x"},
        {"n": 2, "name": "abcd"},
        {"n": 3, "name": "abc"},
        {"n": 1, "nmae": "x"},
        {"n": 1, "name": "a\0"},
        {"n": 4, "name": "z", "window_start": 5, "window_end": 6},
    )
    reasons = {str(sorted(value.items())): reason for value, reason in refused}
    told = [
        "out of range for type smallint",
        'invalid input syntax for type smallint: "many"',
        'null value in column "n"',
        "too long for type character varying(3)",
        "duplicate key value violates unique constraint",
        "has no column 'nmae'; did you mean 'name'?",
        "no text with a NUL byte",
    ]
    assert len(refused) == len(told)
    for words in told:
        assert any(words in reason for reason in reasons.values()), (words, reasons)
    assert shard.rows("n, name") == [(1, "abc"), (4, "z")]


def test_a_deferred_constraint_tells_the_row_too(server: Server) -> None:
    shard = TableShard(server, "n int, unique (n) deferrable initially deferred")
    ((value, reason),) = shard.write({"n": 1}, {"n": 1}, {"n": 2})
    assert value == {"n": 1}
    assert "duplicate key" in reason
    assert shard.rows() == [(1,), (2,)]


def test_columns_may_be_computed(server: Server) -> None:
    shard = TableShard(
        server, '"the ad" int, "100%" float', columns={"the ad": "ad", "100%": "part * 100"}
    )
    assert not shard.write({"ad": 5, "part": 0.5, "other": 1})
    ((_, reason),) = shard.write({"ad": 5})
    assert "part" in reason
    assert shard.rows() == [(5, 50.0)]


def test_a_server_that_is_killed_and_comes_back_loses_nothing(server: Server) -> None:
    shard = TableShard(server, "n int")
    assert not shard.write({"n": 0})
    committable = shard.writer.prepare(SinkBatch(1, "1-1", [SinkRecord("k", {"n": 1}, 0)]))
    server.kill()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="PostgreSQL at 127"):
            shard.writer.publish(committable)
    server.start()
    shard.writer.publish(committable)
    assert shard.rows() == [(0,), (1,)]


def check(server: Server, **options: Any) -> str:
    """What the check of a sink says."""
    with pytest.raises(SetupError) as caught:
        build_postgres_sink({"dsn": server.dsn, **options}).check("r")
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_table_that_is_not_there_is_a_sentence_with_the_statement_to_create_it(
    server: Server,
) -> None:
    server.sql("create table if not exists clicks (ad int, n int)")
    told = check(server, table="click", mode="upsert", by=["ad", "day"])
    assert "has no table 'click'; did you mean 'clicks'?" in told
    assert (
        'create table if not exists "click" ("ad" TYPE, "day" TYPE, primary key ("ad", "day"))'
        in told
    )


def test_a_column_that_is_not_there_and_one_that_cannot_be_written_are_sentences(
    server: Server,
) -> None:
    server.sql("create table fits (ad int, n int, twice int generated always as (n * 2) stored)")
    assert "has no column 'add'; did you mean 'ad'?" in check(
        server, table="fits", mode="upsert", by="add"
    )
    told = check(server, table="fits", mode="upsert", by="ad")
    assert (
        "no unique index on (ad), which option 'by' names; create one: alter table \"fits\" add"
        " primary key" in told
    )
    assert "twice of the table fits is generated" in check(
        server, table="fits", columns={"twice": "n"}
    )


def test_rows_that_can_never_fit_are_told_before_the_run(server: Server) -> None:
    server.sql(
        "create table fitting (ad int, day date not null, clicks int, made timestamptz not null"
        " default now())"
    )

    def told(*fields: str, **options: Any) -> str:
        sink = build_postgres_sink({"dsn": server.dsn, "table": "fitting", **options})
        sink.check("r")
        try:
            sink.check_fields(fields)
        except SetupError as ex:
            return str(ex)
        return ""

    assert told("ad", "day", "clicks") == told("ad", "day", "window_start", "window_end") == ""
    assert "a field 'click', and the table fitting" in told("ad", "day", "click")
    assert "did you mean 'clicks'?" in told("ad", "day", "click")
    assert "the column 'day' of the table fitting" in told("ad", "clicks")
    assert "known: ad, clicks" in told("ad", "clicks")
    assert told("ad", "other", columns={"ad": "ad", "day": "other"}) == ""
    assert "'day'" in told("ad", "other", columns={"ad": "ad"})


def test_a_wrong_password_and_a_server_that_is_not_there_are_sentences_without_the_password(
    server: Server,
) -> None:
    wrong = server.dsn.replace(PASSWORD, "another-secret")
    with pytest.raises(SetupError, match="password authentication failed for user") as caught:
        build_postgres_sink({"dsn": wrong, "table": "t"}).check("r")
    assert "another-secret" not in str(caught.value)
    nowhere = server.dsn.replace(str(server.port), "1")
    with pytest.raises(SetupError, match="Connection refused") as caught:
        build_postgres_sink({"dsn": nowhere, "table": "t"}).check("r")
    assert PASSWORD not in str(caught.value)


def test_a_table_is_created_on_request(server: Server) -> None:
    options = {
        "dsn": server.dsn,
        "table": "made",
        "mode": "upsert",
        "by": "ad",
        "create": {"ad": "bigint", "n": "float8"},
    }
    for _ in range(2):
        build_postgres_sink(options).check("r")
    assert server.sql("select count(*) from made") == [(0,)]
    assert "has no column 'm'" in check(
        server, **{**options, "create": {"ad": "bigint", "m": "int"}}
    )


def test_who_may_not_create_the_table_of_batches_is_told_the_statement(server: Server) -> None:
    server.sql("create role reader login password 'reader-pass'; create table granted (n int)")
    dsn = server.dsn.replace("mill:" + PASSWORD, "reader:reader-pass")
    with pytest.raises(
        SetupError, match=r"does not create the table other_batches.*Create it: create table"
    ):
        build_postgres_sink(
            {"dsn": dsn, "table": "granted", "batches_table": "other_batches"}
        ).check("r")


def test_a_time_without_a_zone_is_utc_whatever_the_database_sets(server: Server) -> None:
    server.sql("alter database postgres set timezone to 'America/New_York'")
    try:
        shard = TableShard(server, "with_zone timestamptz, plain timestamp")
        at = "2026-01-01T00:00:00"
        assert not shard.write(
            *({"with_zone": at + zone, "plain": at + zone} for zone in ("", "Z", "+02:00"))
        )
    finally:
        server.sql("alter database postgres reset timezone")
    found = server.sql(
        f"select (with_zone at time zone 'UTC')::text, plain::text from {shard.table}"
    )
    assert found == [("2026-01-01 00:00:00",) * 2] * 2 + [("2025-12-31 22:00:00",) * 2]


@pytest.mark.parametrize("count", [10, 200])
def test_rows_that_are_equal_for_the_server_are_one_row_and_the_last_one_stays(
    server: Server, count: int
) -> None:
    day = 86_400_000_000
    shard = TableShard(
        server, "day date, id int, n int, primary key (day, id)", mode="upsert", by=["day", "id"]
    )
    rows = [{"day": day * 3 + n, "id": f"{n % 5:0{1 + n // 5 % 3}d}", "n": n} for n in range(count)]
    assert not shard.write(*rows)
    assert server.sql(f"select id, n from {shard.table} order by id") == [
        (n, count - 5 + n) for n in range(5)
    ]


def test_a_view_that_takes_no_rows_is_refused_before_the_run(server: Server) -> None:
    server.sql("create view counted as select 1 as id, count(*) as n from pg_class")
    with pytest.raises(
        SetupError, match=r"counted of PostgreSQL at .* is a view that takes no rows"
    ):
        build_postgres_sink({"dsn": server.dsn, "table": "counted"}).check("r")
