"""Whoever follows a journal of segments believes a group once another one stands behind it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.journal.append import AppendForm
from millwheel.adapters.journal.folder import JournalFolder, SegmentFolder
from millwheel.adapters.journal.follower import groups_between
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.core.formats.journal_segment import JournalEnd
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk


def made(segment_bytes: int) -> tuple[JournalFolder, AppendForm]:
    disk = MemoryDisk()
    make_dirs(disk, "/root/journal/w1")
    return JournalFolder(FolderSpace("/root", disk), "/root/journal/w1", "w1"), AppendForm(
        disk, segment_bytes
    )


@given(st.integers(1, 8), st.integers(1, 300), st.data())
def test_what_was_followed_and_the_rest_are_the_whole_journal_wherever_one_stops(
    count: int, segment_bytes: int, data: Any
) -> None:
    folder, form = made(segment_bytes)
    writer = form.create(folder)
    looks = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    groups = [[b"%d" % number] for number in range(count)]
    seen: list[list[bytes]] = []
    position = None
    for number, group in enumerate(groups):
        writer.commit(group)
        for _ in range(looks[number]):
            followed = form.follow(folder, position)
            seen, position = seen + followed.groups, followed.position
            assert seen == groups[: len(seen)]
            assert len(seen) <= number, "the newest one may be behind a seal"
    end = form.seal(folder)
    assert seen + list(form.read(folder, end, position)) == groups


def test_an_end_before_what_was_followed_is_refused() -> None:
    folder, form = made(10_000)
    writer = form.create(folder)
    for number in range(3):
        writer.commit([b"%d" % number])
    position = form.follow(folder, None).position
    assert position is not None
    form.seal(folder)
    where = SegmentFolder(folder.space, folder.path, folder.incarnation, form._files)
    with pytest.raises(CorruptionError, match="was followed to"):
        list(groups_between(where, position, JournalEnd(1, position.offset - 1).packed()))


def test_a_finished_segment_is_not_all_that_is_certain() -> None:
    folder, form = made(1)
    writer = form.create(folder)
    for number in range(3):
        writer.commit([b"%d" % number])
    first = form.follow(folder, None)
    assert not first.whole
    position = first.position
    while not (found := form.follow(folder, position)).whole:
        position = found.position
    assert position is not None
    assert position.segment == max(folder.segments())


def test_a_journal_without_segments_shows_nothing() -> None:
    folder, form = made(100)
    followed = form.follow(folder, None)
    assert (followed.groups, followed.position) == ([], None)
