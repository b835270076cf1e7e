"""One committer for several shards: what waits goes together, and conflicts are looked at again."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from millwheel.connect.connectors.external.meanings import RowToBlameError
from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.tables.committer import (
    Committer,
    PreparedRows,
    _Job,
    committer_of,
)
from millwheel.connect.connectors.tables.table import (
    LakeTable,
    TableChange,
    TableConflictError,
    TableMark,
    TableVersion,
)
from millwheel.errors import FencedError, UnavailableError

SCHEMA = pa.schema([("n", pa.int64())])


class Table(LakeTable):
    """In memory. ``hold``: commits wait for it."""

    def __init__(self) -> None:
        self.where = "the table"
        self.marks: dict[str, TableMark] = {}
        self.commits: list[TableChange] = []
        self.conflicts = 0
        self.refuses = -1
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
        if self._table.refuses in change.add["n"].to_pylist():
            raise RowToBlameError("a constraint")
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
        threading.Thread(target=committer.write, args=(Owner(f"s{number}", 1), 0, rows(number)))
        for number in range(5)
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


def later(call: Any, *words: Any) -> threading.Thread:
    thread = threading.Thread(target=call, args=words)
    thread.start()
    return thread


def waiting(committer: Committer, count: int) -> None:
    while len(committer._waiting) < count:
        threading.Event().wait(0.001)


@pytest.mark.parametrize("claim_first", [False, True])
def test_a_claim_and_a_batch_of_one_shard_never_share_a_commit(claim_first: bool) -> None:
    """A shard moves away and back to this process while a commit is slow: its old owner's batch
    still waits."""
    table = Table()
    committer = Committer(table)
    old, new = Owner("s", 5), Owner("s", 7)
    committer.write(old, 0, rows(0))
    table.begun.clear()
    table.hold.clear()
    threads = [later(committer.write, Owner("t", 1), 0, rows(100))]
    assert table.begun.wait(10)
    found: list[int] = []
    writes: tuple[Any, ...] = (attempt, committer.write, old, 1, rows(1))
    claims: tuple[Any, ...] = (lambda: found.append(committer.claim(new)),)
    calls = [writes, claims]
    for count, call in enumerate(reversed(calls) if claim_first else calls):
        threads.append(later(*call))
        waiting(committer, count + 1)
    table.hold.set()
    for thread in threads:
        thread.join(10)
    for number in range(found[0] + 1, 2):
        committer.write(new, number, rows(number))
    written = sorted(row["n"] for change in table.commits for row in change.add.to_pylist())
    assert written == [0, 1, 100]
    assert table.marks["s"] == TableMark(1, 7)


def test_a_batch_behind_a_claim_of_its_shard_is_done_when_it_returns() -> None:
    """Which of the waiting threads is next is chance: here it is the one whose batch waits behind
    the claim."""
    table = Table()
    committer = Committer(table)
    claim = _Job(Owner("s", 5))
    committer._waiting.append(claim)
    committer.write(Owner("s", 5), 0, rows(0))
    assert claim.done.is_set()
    assert table.marks["s"] == TableMark(0, 5)
    committer._waiting.append(_Job(Owner("s", 7)))
    with pytest.raises(FencedError):
        committer.write(Owner("s", 5), 1, rows(1))
    assert not committer._waiting


def attempt(call: Any, *words: Any) -> None:
    with suppress(FencedError):
        call(*words)


def test_a_batch_that_the_table_refuses_takes_no_other_shard_with_it() -> None:
    table = Table()
    table.refuses = 13
    committer = Committer(table)
    table.hold.clear()
    threads = [later(committer.write, Owner("s0", 1), 0, rows(0))]
    assert table.begun.wait(10)
    failed: list[Exception] = []

    def write(number: int) -> None:
        try:
            committer.write(Owner(f"s{number}", 1), 0, rows(number))
        except RowToBlameError as ex:
            failed.append(ex)

    threads += [later(write, number) for number in (12, 13, 14)]
    waiting(committer, 3)
    table.hold.set()
    for thread in threads:
        thread.join(10)
    assert len(failed) == 1
    assert sorted(table.marks) == ["s0", "s12", "s14"]


def test_tables_of_one_name_in_two_places_have_two_committers() -> None:
    from millwheel.connect.connectors.tables.delta import DeltaLakeTable
    from millwheel.connect.connectors.tables.iceberg import IcebergTable

    places = [
        {"uri": "sqlite:///a"},
        {"uri": "sqlite:///b"},
        {"uri": "sqlite:///a", "name": "b"},
        {"type": "sql"},
    ]
    stores = [
        {},
        {"AWS_ENDPOINT_URL": "http://a"},
        {"AWS_ENDPOINT_URL": "http://b"},
        {"region": "x"},
    ]
    tables: list[LakeTable] = [IcebergTable(place, "shop.counts") for place in places]
    tables += [DeltaLakeTable("s3://bucket/counts", store) for store in stores]
    assert len({id(committer_of(table)) for table in tables}) == len(tables)
    assert committer_of(IcebergTable(places[0], "shop.counts")) is committer_of(tables[0])
    hidden = IcebergTable({"uri": "postgresql://me:hush@db/catalog"}, "shop.counts")
    assert "hush" not in hidden.where
