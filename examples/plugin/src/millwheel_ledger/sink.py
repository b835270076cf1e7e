"""Writes entries, each once: entries, number and token go into one transaction of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from millwheel.errors import SetupError, UnavailableError
from millwheel.plugins import (
    NOTHING_YET,
    ExternalSink,
    ExternalTarget,
    Owner,
    RowsRefusedError,
    SinkRecord,
)

TABLES = (
    (
        "create table if not exists entries (id integer primary key, account text not null, amount"
        " integer not null)"
    ),
    (
        "create table if not exists batches (name text primary key, number integer not null, token"
        " integer not null)"
    ),
)
INSERT = "insert into entries (account, amount) values (:account, :amount)"


def connected(path: str) -> sqlite3.Connection:
    """A connection on which transactions are begun explicitly."""
    return sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)


class LedgerSink(ExternalSink):
    """A ledger as a sink."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.where = f"the ledger {path}"

    def check(self, identity: str) -> None:
        """Can it be written?"""
        try:
            with closing(connected(self._path)) as connection:
                for statement in TABLES:
                    connection.execute(statement)
        except sqlite3.Error as ex:
            raise SetupError(f"{self.where} cannot be written: {ex}; choose another path") from ex

    def target(self, owner: Owner) -> ExternalTarget:
        return LedgerTarget(self._path, owner)


class LedgerTarget(ExternalTarget):
    """A ledger as the owner of one shard uses it."""

    def __init__(self, path: str, owner: Owner) -> None:
        self._path, self._owner = path, owner

    def connect(self) -> sqlite3.Connection:
        """One connection for each transaction: nothing is left open when a process dies."""
        return connected(self._path)

    def fence(self) -> int:
        try:
            with closing(self.connect()) as connection:
                number = self._begun(connection)
                self._note(connection, number)
                connection.execute("commit")
        except sqlite3.OperationalError as ex:
            raise UnavailableError(f"{self._path}: {ex}") from ex
        return number

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            with closing(self.connect()) as connection:
                if number > self._begun(connection):
                    self._insert(connection, records)
                    self._note(connection, number)
                    connection.execute("commit")
        except sqlite3.OperationalError as ex:
            raise UnavailableError(f"{self._path}: {ex}") from ex

    def _begun(self, connection: sqlite3.Connection) -> int:
        """Begin a transaction that nobody else can write beside; the number of the last batch."""
        connection.execute("begin immediate")
        query = "select number, token from batches where name = ?"
        number, token = connection.execute(query, (self._owner.name,)).fetchone() or (
            NOTHING_YET,
            0,
        )
        self._owner.admits(token)
        return int(number)

    def _note(self, connection: sqlite3.Connection, number: int) -> None:
        row = (self._owner.name, number, self._owner.token)
        connection.execute(
            "insert or replace into batches (name, number, token) values (?, ?, ?)", row
        )

    def _insert(self, connection: sqlite3.Connection, records: Sequence[SinkRecord]) -> None:
        reasons = {}
        for index, record in enumerate(records):
            try:
                connection.execute(INSERT, record.value)
            except (sqlite3.IntegrityError, sqlite3.ProgrammingError) as ex:
                reasons[index] = str(ex)
        if reasons:  # nothing was committed, so nothing is written
            raise RowsRefusedError(reasons)
