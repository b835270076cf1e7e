"""A database in memory with transactions and row locks, a sink for it, and the world of its
contract tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.connect.connectors.external.changes import changes_of
from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import (
    NOTHING_YET,
    ExternalTarget,
    Owner,
    RowsRefusedError,
)
from millwheel.connect.sinks.base import SinkRecord
from millwheel.errors import UnavailableError
from millwheel.testing.contracts import Outside, SinkWorld
from millwheel.tools.testing.contracts.worlds import IDENTITY


class ViolationError(Exception):
    """The database does not take a row."""


class SmallDatabase:
    """What is committed, and who holds the lock of which mark."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self.locks: dict[str, SmallConnection] = {}


class SmallConnection:
    """One transaction at a time."""

    def __init__(self, database: SmallDatabase, outside: Outside) -> None:
        self._database, self._outside = database, outside
        self._rows: list[Any] = []
        self._marks: dict[str, tuple[int, int]] = {}

    def lock(self, name: str) -> tuple[int, int]:
        return self._outside.call("lock", self._lock, name)

    def insert(self, row: Any) -> None:
        self._outside.call("insert", self._insert, row)

    def mark(self, name: str, number: int, token: int) -> None:
        self._outside.call("mark", self._marks.__setitem__, name, (number, token))

    def commit(self) -> None:
        self._outside.call("commit", self._commit)

    def rollback(self) -> None:
        self._rows, self._marks = [], {}
        for name in [name for name, holder in self._database.locks.items() if holder is self]:
            del self._database.locks[name]

    def _lock(self, name: str) -> tuple[int, int]:
        holder = self._database.locks.get(name)
        if holder is not None and holder is not self and not holder._outside.dead:
            raise UnavailableError("another transaction holds the lock")
        self._database.locks[name] = self
        return self._database.marks.get(name, (NOTHING_YET, 0))

    def _insert(self, row: Any) -> None:
        if row["row"] == 13:
            raise ViolationError("a row must not be 13")
        self._rows.append(row)

    def _commit(self) -> None:
        self._database.rows += self._rows
        self._database.marks.update(self._marks)
        self.rollback()


class SmallTarget(ExternalTarget):
    """Does it right. The broken ones of the tests are derived from it."""

    def __init__(self, database: SmallDatabase, owner: Owner, outside: Outside) -> None:
        self.database, self.owner, self.outside = database, owner, outside
        self.connection = SmallConnection(database, outside)

    def fence(self) -> int:
        try:
            number, token = self.connection.lock(self.owner.name)
            self.owner.admits(token)
            self.connection.mark(self.owner.name, number, self.owner.token)
            self.connection.commit()
        finally:
            self.connection.rollback()
        return number

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            last, token = self.connection.lock(self.owner.name)
            self.owner.admits(token)
            if number > last:
                self.insert(records)
                self.connection.mark(self.owner.name, number, self.owner.token)
                self.connection.commit()
        finally:
            self.connection.rollback()

    def insert(self, records: Sequence[SinkRecord]) -> None:
        reasons = {}
        for change in changes_of(records):
            try:
                self.connection.insert(change.row)
            except ViolationError as ex:
                reasons[change.index] = str(ex)
        if reasons:
            raise RowsRefusedError(reasons)


class SmallSink(ExternalSink):
    """``kind`` is the class of its targets."""

    where = "the small database"

    def __init__(
        self, database: SmallDatabase, outside: Outside, kind: type[SmallTarget] = SmallTarget
    ) -> None:
        self._database, self._outside, self._kind = database, outside, kind
        self.identity = IDENTITY

    def check(self, identity: str) -> None: ...

    def target(self, owner: Owner) -> ExternalTarget:
        return self._kind(self._database, owner, self._outside)


class SmallWorld(SinkWorld):
    def __init__(
        self, kind: type[SmallTarget] = SmallTarget, sink: type[SmallSink] = SmallSink
    ) -> None:
        self.database, self._kind, self._sink = SmallDatabase(), kind, sink

    def sink(self, outside: Outside) -> SmallSink:
        return self._sink(self.database, outside, self._kind)

    def rows(self) -> list[Any]:
        return list(self.database.rows)

    def refused(self) -> tuple[Any, str]:
        return {"batch": 0, "row": 13}, "must not be 13"
