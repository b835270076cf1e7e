"""The disk in memory: what a crash and a power cut leave of it."""

from __future__ import annotations

import pytest

from millwheel.adapters.spaces.durable import read_whole, write_new
from millwheel.tools.testing.memory.disk import MemoryDisk


def test_a_power_cut_takes_names_and_bytes_that_were_not_synced() -> None:
    disk = MemoryDisk()
    write_new(disk, "/kept", b"synced")
    disk.sync_dir("/")
    write_new(disk, "/lost", b"its name was not synced")
    fd = disk.open_write("/kept")
    disk.write_at(fd, b" and more", 6)
    disk.crash()
    assert disk.list_dir("/") == ["kept"]
    assert read_whole(disk, "/kept") == b"synced"


def test_a_power_cut_may_leave_a_part_in_order() -> None:
    disk = MemoryDisk()
    for name in "abc":
        write_new(disk, f"/{name}", b"")
    disk.crash(choose=lambda n: n - 1)
    assert disk.list_dir("/") == ["a", "b"]
    fd = disk.open_write("/a")
    disk.write_at(fd, b"torn", 0)
    disk.crash(choose=lambda n: min(n, 2))
    assert read_whole(disk, "/a") == b"to"


def test_a_deleted_file_may_come_back_after_a_power_cut() -> None:
    disk = MemoryDisk()
    write_new(disk, "/a", b"x")
    disk.sync_dir("/")
    disk.unlink("/a")
    disk.crash()
    assert read_whole(disk, "/a") == b"x"


def test_a_crash_without_a_power_cut_only_closes_files() -> None:
    disk = MemoryDisk()
    fd = disk.create("/a")
    disk.write_at(fd, b"unsynced", 0)
    disk.crash(lose_unsynced=False)
    assert disk.open_files() == 0
    assert read_whole(disk, "/a") == b"unsynced"


def test_a_full_disk_takes_what_fits() -> None:
    disk = MemoryDisk(room=5)
    fd = disk.create("/a")
    assert disk.write_at(fd, b"1234567", 0) == 5
    with pytest.raises(OSError, match="ENOSPC"):
        disk.write_at(fd, b"8", 5)
    assert disk.write_at(fd, b"over", 0) == 4
    assert disk.free_bytes("/") == 0
