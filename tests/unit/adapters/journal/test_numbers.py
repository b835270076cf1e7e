"""Where a journal of numbered groups ends: behind the newest group, once a seal has that number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.journal.create import CreateWriter
from millwheel.adapters.journal.folder import JournalFolder, segment_name
from millwheel.adapters.journal.numbers import first_group, load, look, take_end, top_of
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.core.formats.journal_segment import (
    PUT_ID_BYTES,
    SegmentHeader,
    SegmentKind,
    encode_header,
)
from millwheel.errors import CorruptionError, FencedError
from millwheel.tools.testing.memory.disk import MemoryDisk


def folder() -> JournalFolder:
    disk = MemoryDisk()
    make_dirs(disk, "/root/journal/w1")
    return JournalFolder(FolderSpace("/root", disk), "/root/journal/w1", "w1")


def seal(where: JournalFolder, number: int) -> None:
    header = SegmentHeader("w1", number, number, bytes(PUT_ID_BYTES), SegmentKind.SEAL)
    where.create(segment_name(number), encode_header(header))


@given(st.integers(0, 5), st.sets(st.integers(1, 12), max_size=4))
def test_a_seal_is_the_end_exactly_where_the_next_group_would_be(
    groups: int, seals: set[int]
) -> None:
    """Seals of sealers that were too slow, or went further ahead, and died are none."""
    where = folder()
    if groups:
        writer = CreateWriter(where)
        for _ in range(groups - 1):
            writer.commit([b"x"])
    ahead = {number for number in seals if number > groups}
    for number in ahead:
        seal(where, number)
    top = top_of(where)
    assert top.newest == groups
    assert top.end == (groups + 1 if groups + 1 in ahead else 0)
    assert take_end(where) == groups + 1
    assert take_end(where) == groups + 1, "everybody gets the same end"
    assert top_of(where).end == groups + 1


def test_a_writer_that_was_sealed_cannot_come_past_the_end() -> None:
    where = folder()
    writer = CreateWriter(where)
    assert take_end(where) == 2
    with pytest.raises(FencedError):
        writer.commit([b"zombie"])
    assert top_of(where).newest == 1


def test_what_is_missing_is_free_or_a_loss_as_one_asks() -> None:
    where = folder()
    CreateWriter(where)
    assert look(where, 2) is None
    with pytest.raises(CorruptionError, match="is missing"):
        load(where, 2)


def test_another_journals_group_under_our_number_is_damage() -> None:
    where = folder()
    header = SegmentHeader("w2", 1, 1, bytes(PUT_ID_BYTES))
    where.create(segment_name(1), encode_header(header))
    with pytest.raises(CorruptionError, match="it is number 1 of w2"):
        top_of(where)


def test_below_the_groups_stand_at_most_seals_of_the_dead() -> None:
    where = folder()
    seal(where, 1)
    assert first_group(where, top_of(where), 1) == 1
    other = folder()
    writer = CreateWriter(other)
    writer.commit([b"x"])
    other.delete(segment_name(1))
    seal(other, 1)
    assert first_group(other, top_of(other), 3) == 2
