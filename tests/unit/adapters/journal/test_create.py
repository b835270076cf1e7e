"""The writer of the create form: each group is an object, created if absent, under the next
number."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.journal.create import CreateForm, CreateWriter
from millwheel.adapters.journal.folder import JournalFolder, segment_name
from millwheel.adapters.journal.numbers import KEPT_GROUPS
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import CorruptionError, FencedError, InvariantError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk


def made() -> tuple[JournalFolder, CreateForm, CreateWriter]:
    disk = MemoryDisk()
    make_dirs(disk, "/root/journal/w1")
    folder = JournalFolder(FolderSpace("/root", disk), "/root/journal/w1", "w1")
    form = CreateForm()
    return folder, form, form.create(folder)


@given(st.lists(st.lists(st.binary(max_size=20), max_size=3), max_size=8))
def test_whatever_was_committed_is_read_group_by_group(groups: list[list[bytes]]) -> None:
    folder, form, writer = made()
    assert [writer.commit(group) for group in groups] == list(range(2, len(groups) + 2))
    assert list(form.read(folder, form.seal(folder))) == [[], *groups]


def test_a_create_whose_answer_was_lost_is_the_same_group_the_next_time() -> None:
    folder, form, writer = made()
    create, lost = folder.space.create, [True]

    def losing(*given: Any, **more: Any) -> bool:
        done = create(*given, **more)
        if lost.pop():
            lost.append(False)
            raise OSError(errno.EIO, "the answer is lost")
        lost.append(False)
        return done

    folder.space.create = losing  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        writer.commit([b"once"])
    writer.commit([b"once"])
    assert list(form.read(folder, form.seal(folder))) == [[], [b"once"]]


def test_a_sealed_writer_is_fenced_for_good() -> None:
    folder, form, writer = made()
    form.seal(folder)
    for _ in range(2):
        with pytest.raises(FencedError):
            writer.commit([b"zombie"])


def test_the_newest_groups_stay_though_nobody_needs_them() -> None:
    folder, _, writer = made()
    for _ in range(KEPT_GROUPS + 3):
        writer.commit([b"x"])
    for group in list(writer.segments())[:-1]:
        writer.delete_segment(group)
    assert len(folder.segments()) == KEPT_GROUPS
    with pytest.raises(InvariantError, match="newest one"):
        writer.delete_segment(KEPT_GROUPS + 4)


def test_a_group_is_followed_once_the_next_one_shows_that_it_is_durable() -> None:
    folder, form, writer = made()
    writer.commit([b"a"])
    writer.commit([b"b"])
    seen = form.follow(folder, None)
    assert seen.groups == [[], [b"a"]]
    writer.commit([b"c"])
    assert form.follow(folder, seen.position).groups == [[b"b"]]


def test_what_is_followed_says_whether_it_is_all_that_is_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millwheel.adapters.journal.create._AT_ONCE", 2)
    folder, form, writer = made()
    for _ in range(4):
        writer.commit([b"x"])
    first = form.follow(folder, None)
    assert (len(first.groups), first.whole) == (2, False)
    assert form.follow(folder, first.position).whole is False  # it may go on behind them
    assert form.follow(folder, form.follow(folder, first.position).position).whole is True


def test_a_hole_in_the_middle_is_damage() -> None:
    folder, form, writer = made()
    writer.commit([b"a"])
    writer.commit([b"b"])
    end = form.seal(folder)
    folder.delete(segment_name(2))
    with pytest.raises(CorruptionError, match=r"00000002.log is missing"):
        list(form.read(folder, end))


def test_the_last_delete_of_a_dead_writer_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, form, writer = made()
    for number in range(12):
        writer.commit([b"%d" % number])
    sealed, listed = form.seal(folder), folder.segments()
    folder.delete(segment_name(listed[0]))
    # a listing from before that delete
    monkeypatch.setattr(JournalFolder, "segments", lambda self: listed)
    assert list(form.read(folder, sealed)) == [[b"%d" % number] for number in range(12)]
    folder.delete(segment_name(listed[4]))
    with pytest.raises(CorruptionError, match="is missing"):
        list(form.read(folder, sealed))
