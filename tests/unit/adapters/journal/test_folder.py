"""The names in a journal's folder, and what is said when one is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.journal.folder import (
    COLLECTED,
    SEAL,
    JournalFolder,
    segment_name,
    segments_in,
)
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import CorruptionError, FencedError
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture
def folder() -> JournalFolder:
    disk = MemoryDisk()
    make_dirs(disk, "/root/journal")
    made = JournalFolder(FolderSpace("/root", disk), "/root/journal/w1", "w1")
    made.claim()
    return made


@given(st.sets(st.integers(0, 10**9), max_size=10))
def test_the_numbers_of_segments_are_read_from_their_names_and_from_nothing_else(
    numbers: set[int],
) -> None:
    names = [*map(segment_name, numbers), SEAL, COLLECTED, ".tmp-1", "x.log", "1.log.tmp"]
    assert sorted(segments_in(names)) == sorted(numbers)


def test_names_of_segments_sort_as_their_numbers() -> None:
    assert segment_name(9) < segment_name(10) < segment_name(12_345_678)


def test_an_incarnation_has_its_folder_once(folder: JournalFolder) -> None:
    with pytest.raises(FencedError, match="this incarnation was used or sealed before"):
        folder.claim()
    folder.ensure()


@pytest.mark.parametrize(("groups", "empty"), [([], True), ([[]], True), ([[], [b"x"]], False)])
def test_a_collected_journal_remembers_whether_anything_was_in_it(
    folder: JournalFolder, groups: list[list[bytes]], empty: bool
) -> None:
    assert not folder.was_empty()
    folder.begin_collecting(iter(groups), 7)
    folder.begin_collecting(iter([[b"later"]]), 9)
    assert folder.was_empty() is empty
    assert folder.collected_end() == 7, "the first note stands"


def test_a_gap_is_somebodys_loss_unless_the_journal_was_collected(folder: JournalFolder) -> None:
    with pytest.raises(CorruptionError, match=r"w1/00000003.log is missing.*Restore the file"):
        folder.refuse_gap(3)
    folder.create(COLLECTED, b"")
    with pytest.raises(FencedError, match="newer snapshots exist"):
        folder.refuse_gap(3)
