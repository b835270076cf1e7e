"""A table as the target of one shard: rows, number and token in one transaction.

The number of the last batch and the token of its writer are a row in a table of ours, under the
name of the shard. A writer locks this row first, so two owners never write at the same time, and
the token decides which of them may write.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from millwheel.connect.connectors.external.meanings import Meaning, is_of_client
from millwheel.connect.connectors.external.target import (
    NOTHING_YET,
    ExternalTarget,
    Owner,
    RowsRefusedError,
)
from millwheel.connect.connectors.postgres import client
from millwheel.connect.connectors.postgres.sink_options import PostgresSinkOptions, identity_of
from millwheel.connect.connectors.postgres.statements import TableWriter
from millwheel.connect.connectors.postgres.table import look_at, quoted
from millwheel.connect.connectors.postgres.text_rows import RowMaker, TextRow, evaluators
from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.model.lease import Lease
from millwheel.errors import SetupError, UnavailableError


class PostgresTarget(ExternalTarget):
    """The target has one connection and closes it after every error."""

    def __init__(self, options: PostgresSinkOptions, owner: Owner, where: str) -> None:
        self._options = options
        self._owner = owner
        self._where = where
        self._batches = quoted(options.batches_table).replace("%", "%%")
        self._psycopg = client.library()
        self._connection: Any = None
        self._evaluate = evaluators(options)
        self._maker: RowMaker | None = None
        self._writer: TableWriter | None = None

    def connect(self) -> Any:
        """A new connection; raises psycopg's errors."""
        return client.connect(self._options.dsn)

    def fence(self) -> int:
        try:
            connection = self._connected()
            with connection.transaction():
                # So that there is a row to lock: of two first owners, one waits here.
                connection.execute(
                    f"insert into {self._batches} (name, number, token) values (%s, %s, %s) on"
                    " conflict do nothing",
                    (self._owner.name, NOTHING_YET, self._owner.token),
                )
                number, token = self._locked(connection)
                self._owner.admits(token)
                connection.execute(
                    f"update {self._batches} set token = %s where name = %s",
                    (self._owner.token, self._owner.name),
                )
        except BaseException as ex:
            raise self._given_up(ex) from ex.__cause__
        return int(number)

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            connection = self._connected()
            with connection.transaction():
                last, token = self._locked(connection)
                self._owner.admits(token)
                if Lease(self._owner.token).outlived(token):
                    raise UnavailableError(
                        f"{self._where} has lost our lease token; it is noted again"
                    )
                if number <= last:  # the answer to its commit was lost
                    return
                # A deferred constraint would fail only at the commit, which does not name the row.
                connection.execute("set constraints all immediate")
                self._write_rows(connection, records)
                connection.execute(
                    f"update {self._batches} set number = %s, written_at = now() where name = %s",
                    (number, self._owner.name),
                )
        except BaseException as ex:
            raise self._given_up(ex) from ex.__cause__

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self.connect()
            self._maker = self._writer = None
        return self._connection

    def _locked(self, connection: Any) -> tuple[int, int]:
        """(Number, token) of our shard, locked until the end of the transaction."""
        # "for update": a successor's claim and our transaction wait for each other. Without the
        # lock a zombie's rows could be committed behind the claim
        # (test_a_zombie_between_any_two_calls_adds_nothing).
        row = connection.execute(
            f"select number, token from {self._batches} where name = %s for update",
            (self._owner.name,),
        ).fetchone()
        if row is None:
            raise UnavailableError(
                f"{self._where}: the row of {self._owner.name} in {self._batches} is gone"
            )
        return int(row[0]), int(row[1])

    def _write_rows(self, connection: Any, records: Sequence[SinkRecord]) -> None:
        maker, writer = self._tools(connection)
        rows, wrong = maker.rows(records)
        if wrong:
            raise RowsRefusedError(wrong)
        if not rows:
            return
        try:
            # A savepoint: the first refused row would end the transaction that has locked our mark.
            with connection.transaction():
                writer.write(connection, rows)
        except Exception as ex:
            if client.meaning_of(ex) is Meaning.ABSENT or connection.closed:
                raise
            self._one_by_one(connection, writer, rows, ex)

    def _one_by_one(
        self, connection: Any, writer: TableWriter, rows: Sequence[TextRow], first: Exception
    ) -> None:
        """Write the rows one after the other, which shows the refused ones: the server names no
        row. Errors of many rows at once no longer occur then. ``first`` is the error of all rows
        together."""
        wrong: dict[int, Exception] = {}
        for row in rows:
            try:
                with connection.transaction():
                    writer.write(connection, [row])
            except Exception as ex:
                if client.meaning_of(ex) is Meaning.ABSENT or connection.closed:
                    raise
                wrong[row.index] = ex
        if not wrong:
            return
        # An error of all rows, and one that is not about values, is the fault of the table.
        if len(wrong) == len(rows) and any(
            client.meaning_of(ex) is not Meaning.ROWS for ex in wrong.values()
        ):
            raise first
        raise RowsRefusedError({index: client.words_of(ex) for index, ex in wrong.items()})

    def _tools(self, connection: Any) -> tuple[RowMaker, TableWriter]:
        """The tools for the table as it was when the connection was opened."""
        if self._maker is None or self._writer is None:
            table = look_at(connection, self._options.table)
            if table is None:
                raise SetupError(f"{self._where} has no table {self._options.table} any more")
            self._maker = RowMaker(self._options, table, self._evaluate)
            self._writer = TableWriter(table, identity_of(self._options))
        return self._maker, self._writer

    def _given_up(self, error: BaseException) -> BaseException:
        """The error to raise. The connection is not used again after any error."""
        self.close()
        return client.in_words(error, self._where) if is_of_client(error) else error
