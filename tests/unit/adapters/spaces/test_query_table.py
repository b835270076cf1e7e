"""Named queries that change, in a root."""

from __future__ import annotations

import pytest

from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.query_table import QueryTable
from millwheel.core.pipeline.query_changes import QueryRow
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture
def space() -> FolderSpace:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return FolderSpace("/root", disk)


def test_two_that_change_at_once_both_count(
    space: FolderSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, read = QueryTable(space), QueryTable.read
    late = iter([True, False])

    def overtaken(self: QueryTable, known: object = None) -> object:
        found = read(self)
        if next(late, False):
            QueryTable(space).change([QueryRow("b", "y.n")])
        return found

    monkeypatch.setattr(QueryTable, "read", overtaken)
    changes = table.change([QueryRow("a", "x.n")])
    assert changes.number == 2
    assert {row.name for row in changes.rows} == {"a", "b"}


def test_one_that_stalls_until_its_number_is_free_again_counts(
    space: FolderSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, read = QueryTable(space), QueryTable.read
    late = iter([True])

    def overtaken(self: QueryTable, known: object = None) -> object:
        found = read(self)
        if next(late, False):
            for index in range(8):
                QueryTable(space).change([QueryRow(f"b{index}", "y.n")])
        return found

    monkeypatch.setattr(QueryTable, "read", overtaken)
    table.change([QueryRow("a", "x.n")])
    assert len(read(table).rows) == 9


def test_other_files_beside_the_tables_are_left_alone(space: FolderSpace) -> None:
    table = QueryTable(space)
    table.change([QueryRow("a", "x.n")])
    space.create("/root/queries/notes.json", b"{}")
    assert table.read().number == 1


def test_the_newest_is_read_and_old_ones_go(space: FolderSpace) -> None:
    table = QueryTable(space)
    assert table.read().number == 0
    for index in range(8):
        table.change([QueryRow(f"q{index}", "x.n")])
    newest = table.read()
    assert len(newest.rows) == 8
    assert table.read(newest) is newest
    assert len(space.names("/root/queries")) == 4


def test_a_damaged_table_is_told(space: FolderSpace) -> None:
    QueryTable(space).change([QueryRow("a", "x.n")])
    space.create("/root/queries/00000002.json", b"torn")
    with pytest.raises(CorruptionError):
        QueryTable(space).read()
