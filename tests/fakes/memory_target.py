"""A target in memory, for sinks that write to other systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import (
    NOTHING_YET,
    ExternalTarget,
    Owner,
    RowsRefusedError,
)
from millwheel.connect.sinks.base import SinkRecord
from millwheel.errors import UnavailableError


class Table:
    """A target in memory: rows, and by shard the last number and token."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self.calls: list[str] = []
        self.trouble: list[BaseException | None] = []
        self.lost_answers = False


class MemoryTarget(ExternalTarget):
    def __init__(self, table: Table, owner: Owner) -> None:
        self._table, self._owner = table, owner

    def fence(self) -> int:
        self._called("fence")
        number, token = self._table.marks.get(self._owner.name, (NOTHING_YET, 0))
        self._owner.admits(token)
        self._table.marks[self._owner.name] = number, self._owner.token
        return number

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        self._called(f"write {number}")
        self._owner.admits(self._table.marks[self._owner.name][1])
        bad = {
            index: f"{record.value} is odd"
            for index, record in enumerate(records)
            if record.value == 13
        }
        if bad:
            raise RowsRefusedError(bad)
        self._table.rows += [record.value for record in records]
        self._table.marks[self._owner.name] = number, self._owner.token
        if self._table.lost_answers:
            raise UnavailableError("the answer is lost")

    def close(self) -> None:
        self._table.calls.append("close")

    def _called(self, name: str) -> None:
        self._table.calls.append(name)
        trouble = self._table.trouble.pop(0) if self._table.trouble else None
        if trouble is not None:
            raise trouble


class MemorySink(ExternalSink):
    longest_wait_s = 0.0

    def __init__(self, table: Table, identity: str = "root", where: str = "the table") -> None:
        self._table, self.identity, self.where = table, identity, where

    def check(self, identity: str) -> None: ...

    def target(self, owner: Owner) -> ExternalTarget:
        return MemoryTarget(self._table, owner)
