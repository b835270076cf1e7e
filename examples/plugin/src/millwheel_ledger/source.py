"""Reads the entries of a ledger. The position of an entry is its id, which never changes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from millwheel.errors import SetupError
from millwheel.plugins import Chunk, Partition, Reader, Source

QUERY = "select id, account, amount from entries where id > ? and id <= ? order by id limit ?"


class LedgerSource(Source):
    """The entries that there are when the run begins."""

    bounded = True

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> Sequence[Partition]:
        """One, with the last id as its version: the root keeps it, so a run that goes on ends at
        the same entry."""
        if not os.path.exists(self._path):
            raise SetupError(f"there is no ledger {self._path}")
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                (last,) = connection.execute("select coalesce(max(id), 0) from entries").fetchone()
        except sqlite3.Error as ex:
            raise SetupError(f"{self._path} cannot be read as a ledger: {ex}") from ex
        return [Partition("entries", (last,))]

    def open(self, partition: Partition) -> Reader:
        (last,) = partition.version or (0,)
        return LedgerReader(sqlite3.connect(self._path), last)


class LedgerReader(Reader):
    """Entries up to the id ``last``."""

    def __init__(self, connection: sqlite3.Connection, last: int) -> None:
        self._connection, self._last = connection, last

    def read(self, position: int, max_records: int) -> Chunk:
        rows = self._connection.execute(QUERY, (position, self._last, max_records)).fetchall()
        values = [
            {"id": id_, "account": account, "amount": amount} for id_, account, amount in rows
        ]
        finished = len(rows) < max_records
        following = self._last if finished else rows[-1][0]
        return Chunk([row[0] for row in rows], values, max(position, following), finished=finished)

    def close(self) -> None:
        self._connection.close()
