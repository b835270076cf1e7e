from __future__ import annotations

import errno

import pytest

from millwheel.adapters.spaces.durable import (
    chunks,
    copy_file,
    create_if_absent,
    make_dirs,
    read_whole,
    remove_tree,
    sync_file,
    write_all,
    write_new,
)
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, fail_when, kill_at


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    make_dirs(disk, "/a")
    return disk


def test_the_first_create_wins_and_the_second_changes_nothing(disk: MemoryDisk) -> None:
    assert create_if_absent(disk, "/a", "x", b"first")
    assert not create_if_absent(disk, "/a", "x", b"second")
    assert read_whole(disk, "/a/x") == b"first"
    assert disk.list_dir("/a") == ["x"]


def test_a_create_survives_a_power_cut_once_it_returned(disk: MemoryDisk) -> None:
    create_if_absent(disk, "/a", "x", b"first")
    disk.crash()
    assert read_whole(disk, "/a/x") == b"first"


def test_a_loser_makes_the_winner_durable(disk: MemoryDisk) -> None:
    winner = FaultyFiles(disk, after=lambda call: _die(call.name == "link"))
    with pytest.raises(Killed):
        create_if_absent(winner, "/a", "x", b"first")
    assert not create_if_absent(disk, "/a", "x", b"second")
    disk.crash()
    assert read_whole(disk, "/a/x") == b"first"


def _die(now: bool) -> None:
    if now:
        raise Killed


def test_a_create_killed_at_any_step_is_whole_or_absent() -> None:
    number, done = 0, False
    while not done:
        disk = MemoryDisk()
        make_dirs(disk, "/a")
        files = FaultyFiles(disk, before=kill_at(number))
        try:
            create_if_absent(files, "/a", "x", b"whole")
            done = True
        except Killed:
            pass
        assert not disk.exists("/a/x") or read_whole(disk, "/a/x") == b"whole"
        disk.crash(choose=lambda n: n)
        assert not disk.exists("/a/x") or read_whole(disk, "/a/x") == b"whole"
        number += 1


def test_our_own_file_counts_as_ours_when_the_answer_was_lost(disk: MemoryDisk) -> None:
    files = FaultyFiles(disk, after=fail_when("link", errno.EIO))
    with pytest.raises(OSError, match="injected"):
        create_if_absent(files, "/a", "x", b"put-id 1")
    assert create_if_absent(disk, "/a", "x", b"put-id 1")
    assert not create_if_absent(disk, "/a", "x", b"put-id 2")


def test_a_name_that_another_took_and_gave_up_meanwhile_is_not_ours(disk: MemoryDisk) -> None:
    create_if_absent(disk, "/a", "x", b"theirs")

    def delete(call: Call) -> None:
        if call.name == "open_read":
            disk.unlink("/a/x")

    assert not create_if_absent(FaultyFiles(disk, before=delete), "/a", "x", b"ours")


def test_a_full_disk_leaves_no_temporary_file(disk: MemoryDisk) -> None:
    disk.room = 10
    with pytest.raises(OSError, match="ENOSPC"):
        create_if_absent(disk, "/a", "x", bytes(100))
    assert disk.list_dir("/a") == []


def test_short_writes_are_continued(disk: MemoryDisk) -> None:
    class Short(MemoryDisk):
        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
            return super().write_at(fd, data[:3], offset)

    short = Short()
    write_new(short, "/x", b"0123456789")
    assert read_whole(short, "/x") == b"0123456789"


def test_a_disk_that_takes_nothing_is_an_error(disk: MemoryDisk) -> None:
    class Stuck(MemoryDisk):
        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
            return 0

    stuck = Stuck()
    with pytest.raises(OSError, match="takes no more after 0 of 3 bytes"):
        write_all(stuck, stuck.create("/x"), b"abc", 0)


def test_a_copy_is_synced(disk: MemoryDisk) -> None:
    write_new(disk, "/a/x", b"content")
    copy_file(disk, "/a/x", "/a/y")
    disk.sync_dir("/a")
    disk.crash()
    assert read_whole(disk, "/a/y") == b"".join(chunks(disk, "/a/y")) == b"content"


def test_a_copy_or_a_folder_that_need_not_be_durable_waits_for_no_disk(disk: MemoryDisk) -> None:
    write_new(disk, "/a/x", b"content")
    disk.sync_dir("/a")
    disk.crash()
    copy_file(disk, "/a/x", "/a/y", durable=False)
    make_dirs(disk, "/a/z", durable=False)
    assert read_whole(disk, "/a/y") == b"content"
    assert disk.exists("/a/z")
    disk.crash()
    assert not disk.exists("/a/z")
    sync_file(disk, "/a/x")


def test_folders_are_made_durably_and_removed_with_what_is_in_them(disk: MemoryDisk) -> None:
    make_dirs(disk, "/b/c/d")
    disk.crash()
    write_new(disk, "/b/c/d/x", b"")
    remove_tree(disk, "/b/c/d")
    remove_tree(disk, "/b/c/d")
    assert disk.list_dir("/b/c") == []
