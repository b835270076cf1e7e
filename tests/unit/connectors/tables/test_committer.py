"""One committer for several shards: what waits goes together, and conflicts are looked at again."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from millwheel.connectors.external.target import Owner
from millwheel.connectors.tables.committer import Committer, PreparedRows
from millwheel.connectors.tables.table import LakeTable, TableChange, TableConflictError, TableMark, TableVersion
from millwheel.errors import FencedError, UnavailableError

SCHEMA = pa.schema([("n", pa.int64())])


class Table(LakeTable):
    """In memory. ``hold``: commits wait for it."""

    def __init__(self) -> None:
        self.where = "the table"
        self.marks: dict[str, TableMark] = {}
        self.commits: list[TableChange] = []
        self.conflicts = 0
        self.begun, self.hold = threading.Event(), threading.Event()
        self.hold.set()

    def look(self) -> TableVersion:
        return Version(self)

    def create(self, schema: pa.Schema) -> None: ...


class Version(TableVersion):
    schema = SCHEMA

    def __init__(self, table: Table) -> None:
        self._table, self._at = table, len(table.commits)

    def mark(self, name: str) -> TableMark:
        return self._table.marks.get(name, TableMark())

    def commit(self, change: TableChange) -> None:
        self._table.begun.set()
        assert self._table.hold.wait(10)
        if self._table.conflicts:
            self._table.conflicts -= 1
            raise TableConflictError("another was first")
        assert self._at == len(self._table.commits)
        self._table.commits.append(change)
        self._table.marks |= change.marks

    def standing(self, by: Any, keys: Any) -> Any: ...


def rows(number: int) -> Any:
    return lambda version: PreparedRows(pa.table({"n": [number]}, schema=SCHEMA))


def test_what_waits_for_a_commit_is_the_next_one_together() -> None:
    table = Table()
    committer = Committer(table)
    table.hold.clear()
    threads = [
        threading.Thread(target=committer.write, args=(Owner(f"s{number}", 1), 0, rows(number))) for number in range(5)
    ]
    threads[0].start()
    assert table.begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(committer._waiting) < 4:
        threading.Event().wait(0.001)
    table.hold.set()
    for thread in threads:
        thread.join()
    assert [change.add.num_rows for change in table.commits] == [1, 4]
    assert set(table.marks) == {f"s{number}" for number in range(5)}


def test_a_batch_that_is_there_is_not_written_again() -> None:
    table = Table()
    committer = Committer(table)
    for _ in range(2):
        committer.write(Owner("s", 1), 0, rows(1))
    assert len(table.commits) == 1
    assert committer.claim(Owner("s", 2)) == 0


def test_a_newer_owner_shuts_out_the_former_one_and_nobody_else() -> None:
    table = Table()
    committer = Committer(table)
    committer.claim(Owner("s", 2))
    with pytest.raises(FencedError):
        committer.write(Owner("s", 1), 0, rows(1))
    committer.write(Owner("t", 1), 0, rows(1))
    assert table.marks == {"s": TableMark(-1, 2), "t": TableMark(0, 1)}


def test_conflicts_are_tried_again_and_not_for_ever() -> None:
    table = Table()
    waits: list[float] = []
    table.conflicts = 3
    Committer(table, waits.append).write(Owner("s", 1), 0, rows(1))
    assert len(waits) == 3
    table.conflicts = 1_000
    with pytest.raises(UnavailableError, match="was changed by others"):
        Committer(table, waits.append).write(Owner("s", 1), 1, rows(1))
