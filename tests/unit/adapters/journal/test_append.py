"""The writer of the append form: durable first, then a look for the seal, then an answer."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.journal import append
from millwheel.adapters.journal.append import AppendForm, AppendWriter
from millwheel.adapters.journal.folder import SEAL, JournalFolder
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import FencedError, InvariantError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk


class Watched(MemoryDisk):
    """Notes the calls that matter to the order of durability, and fails one of them if asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.fails = ""

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.fails:
            self.fails = ""
            raise OSError(errno.EIO, "the disk fails")

    def write_at(self, *given: Any) -> Any:
        self._note("write")
        return super().write_at(*given)

    def sync_data(self, *given: Any) -> Any:
        self._note("sync")
        return super().sync_data(*given)

    def exists(self, path: str) -> bool:
        if path.endswith(SEAL):
            self._note("look")
        return super().exists(path)


def made(segment_bytes: int = 10_000) -> tuple[Watched, JournalFolder, AppendForm, AppendWriter]:
    disk = Watched()
    make_dirs(disk, "/root/journal/w1")
    folder = JournalFolder(FolderSpace("/root", disk), "/root/journal/w1", "w1")
    form = AppendForm(disk, segment_bytes)
    writer = form.create(folder)
    disk.calls.clear()
    return disk, folder, form, writer


def test_a_commit_is_written_synced_and_only_then_the_seal_is_looked_for() -> None:
    disk, _, _, writer = made()
    writer.commit([b"entry"])
    assert disk.calls == ["write", "sync", "look"]


def test_without_entries_nothing_is_written_and_the_seal_is_looked_for_all_the_same() -> None:
    disk, folder, form, writer = made()
    writer.commit([])
    assert disk.calls == ["look"]
    form.seal(folder)
    with pytest.raises(FencedError):
        writer.commit([])


def test_after_a_sync_that_failed_nothing_more_is_acked() -> None:
    disk, _, _, writer = made()
    disk.fails = "sync"
    with pytest.raises(UnavailableError, match="must exit and be replaced"):
        writer.commit([b"perhaps"])
    with pytest.raises(UnavailableError):
        writer.commit([b"more"])


def test_after_a_write_that_took_nothing_the_journal_goes_on_where_it_was() -> None:
    disk, folder, form, writer = made()
    disk.fails = "write"
    with pytest.raises(UnavailableError):
        writer.commit([b"lost"])
    writer.commit([b"kept"])
    assert list(form.read(folder, form.seal(folder))) == [[b"kept"]]


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), max_size=8),
    st.integers(1, 200),
)
def test_whatever_was_committed_is_read_whatever_the_size_of_segments(
    groups: list[list[bytes]], segment_bytes: int
) -> None:
    _, folder, form, writer = made(segment_bytes)
    for group in groups:
        writer.commit(group)
    end = form.seal(folder)
    assert form.seal(folder) == end
    assert list(form.read(folder, end)) == groups


def test_a_segment_goes_only_when_all_before_it_went_and_never_the_one_being_written() -> None:
    _, folder, _, writer = made(1)
    for _ in range(3):
        writer.commit([b"x"])
    first, second, *_, last = writer.segments()
    writer.delete_segment(second)
    assert second in folder.segments()
    writer.delete_segment(first)
    assert first not in folder.segments()
    assert second not in folder.segments()
    with pytest.raises(InvariantError, match="still being written"):
        writer.delete_segment(last)


def test_only_the_journals_of_the_dead_are_collected() -> None:
    _, folder, form, writer = made()
    with pytest.raises(InvariantError, match="not sealed"):
        form.collect(folder)
    writer.commit([b"x"])
    form.seal(folder)
    form.collect(folder)
    assert folder.segments() == []
    with pytest.raises(FencedError):
        writer.commit([b"zombie"])


def test_a_segment_is_full_after_many_groups_however_small_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append, "_SEGMENT_GROUPS", 3)
    _, folder, form, writer = made()
    assert [writer.commit([b"x%d" % number]) for number in range(8)] == [1, 1, 1, 2, 2, 2, 3, 3]
    writer.delete_segment(1)
    found = [entry for group in form.read(folder, form.seal(folder)) for entry in group]
    assert found == [b"x%d" % number for number in range(3, 8)]
