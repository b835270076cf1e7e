from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.root_notes import HangNotes, QueryTable, ReplayOrders
from millwheel.core.pipeline.query_changes import QueryRow
from millwheel.core.pipeline.replays import ReplayOrder, Request
from millwheel.errors import CorruptionError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture
def space() -> FolderSpace:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return FolderSpace("/root", disk)


def test_a_replay_is_asked_for_bound_and_done(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    assert not orders.pending()
    assert orders.request(1, Request("a", []))
    assert list(orders.unbound()) == [1]
    assert orders.pending()
    orders.bind(1, ReplayOrder("a", []))
    assert orders.unbound() == {}
    assert orders.undone() == {1: ReplayOrder("a", [])}
    assert orders.undone(frozenset({1})) == {}
    orders.finish(1)
    orders.finish(1)
    assert (orders.undone(), orders.done(), orders.pending()) == ({}, {1}, False)


def test_of_two_that_ask_under_one_number_one_is_told_to_take_another(space: FolderSpace) -> None:
    assert ReplayOrders(space).request(1, Request("a", []))
    assert not ReplayOrders(space).request(1, Request("b", []))
    assert ReplayOrders(space).requests() == {1: Request("a", [])}


def test_the_first_order_of_a_request_stands(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    orders.bind(1, ReplayOrder("first", []))
    orders.bind(1, ReplayOrder("second", []))
    assert orders.undone()[1].id == "first"


def test_a_damaged_order_is_told(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    orders.bind(1, ReplayOrder("first", []))
    space.delete("/root/replay/00000001.order")
    space.create("/root/replay/00000001.order", b"torn")
    with pytest.raises(CorruptionError):
        orders.undone()


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


def test_what_one_writes_others_read_until_it_is_removed(tmp_path: Path) -> None:
    mine, other = HangNotes(open_space(str(tmp_path))), HangNotes(open_space(str(tmp_path)))
    mine.write("work", b"one")
    mine.write("work", b"two")
    assert sorted(other.read("work").values()) == [b"one", b"two"]
    assert other.read("another") == {}
    for name in other.read("work"):
        other.remove("work", name)
        mine.remove("work", name)
    assert mine.read("work") == {}


def test_when_all_is_processed_nothing_is_left_of_it(tmp_path: Path) -> None:
    notes = HangNotes(open_space(str(tmp_path)))
    for node in ("work", "work", "more"):
        notes.write(node, b"one")
    notes.clear(["given", "work"])
    assert notes.read("work") == {}
    assert len(notes.read("more")) == 1


def test_a_root_that_fails_is_told_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("a file where a folder should be")
    notes = HangNotes(open_space(str(tmp_path)))
    with pytest.raises(UnavailableError, match="write a note"):
        notes.write("work", b"")
    (tmp_path / "hangs").unlink()
    (tmp_path / "hangs").mkdir()
    (tmp_path / "hangs" / "work").mkdir()
    (tmp_path / "hangs" / "work" / "a.json").mkdir()
    with pytest.raises(UnavailableError, match="read the notes"):
        notes.read("work")
