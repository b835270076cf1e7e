"""An onlooker sees each commit of a journal once, in either form, while it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.journal.journals import FileJournals
from millwheel.core.formats.codec import Commit, encode_commit
from millwheel.tools.chaos.journal_tail import Committed, JournalTail


def entry(shard: str, number: int) -> bytes:
    return encode_commit(Commit(shard, 3, number, [(b"k", b"v" * 50)], []))


@pytest.mark.parametrize("form", ["append", "create"])
def test_what_is_committed_is_seen_once_across_segments(tmp_path: Path, form: str) -> None:
    journals = FileJournals(str(tmp_path), form, segment_bytes=400)
    tail = JournalTail(tmp_path / "journal" / "w0-a")
    assert list(tail.new()) == []
    writer = journals.create("w0-a")
    assert list(tail.new()) == []
    for number in range(1, 21):
        writer.commit([entry("n-0", number), entry("n-1", number)])
        if number % 3 == 0:
            assert list(tail.new()) == [Committed("n-0", 3), Committed("n-1", 3)] * 3
    assert len(list(tail.new())) == 4
    assert list(tail.new()) == []
    assert len(writer.segments()) > 2


def test_a_group_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    writer = FileJournals(str(tmp_path), "append").create("w0-a")
    tail = JournalTail(tmp_path / "journal" / "w0-a")
    writer.commit([entry("n-0", 1)])
    [path] = tail.folder.glob("*.log")
    whole = path.read_bytes().rstrip(b"\0")
    path.write_bytes(whole[:-5])
    assert list(tail.new()) == []
    path.write_bytes(whole)
    assert list(tail.new()) == [Committed("n-0", 3)]


def test_segments_that_were_deleted_are_done_without(tmp_path: Path) -> None:
    writer = FileJournals(str(tmp_path), "append", segment_bytes=100).create("w0-a")
    tail = JournalTail(tmp_path / "journal" / "w0-a")
    for number in range(1, 5):
        writer.commit([entry("n-0", number)])
    for segment in writer.segments()[:-1]:
        writer.delete_segment(segment)
    seen = len(list(tail.new()))
    writer.commit([entry("n-1", 1)])
    assert seen < 4
    assert list(tail.new())[-1] == Committed("n-1", 3)


def test_a_seal_is_seen(tmp_path: Path) -> None:
    journals = FileJournals(str(tmp_path), "append")
    journals.create("w0-a").commit([entry("n-0", 1)])
    tail = JournalTail(tmp_path / "journal" / "w0-a")
    assert not tail.sealed()
    journals.seal("w0-a")
    assert tail.sealed()
