"""A folder as a space of objects: a name is given once, and a file that is shared is never the one
that is written."""

from __future__ import annotations

import errno

import pytest

from millwheel.adapters.spaces.durable import make_dirs, read_whole, write_all
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.tools.testing.memory.disk import MemoryDisk


class Apart(MemoryDisk):
    """Two file systems: nothing can be linked from one to the other."""

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "not on the same file system")


def space(disk: MemoryDisk) -> FolderSpace:
    for folder in ("/root/f", "/local"):
        make_dirs(disk, folder)
    fd = disk.create("/local/a")
    write_all(disk, fd, b"content", 0)
    disk.close(fd)
    return FolderSpace("/root", disk)


def test_a_name_is_given_once_and_the_same_bytes_again_are_the_same_creation() -> None:
    made = space(MemoryDisk())
    assert made.create("/root/f/x", b"1")
    assert made.create("/root/f/x", b"1")
    assert not made.create("/root/f/x", b"2")
    assert made.get("/root/f/x") == b"1"
    made.delete("/root/f/x")
    made.delete("/root/f/x")
    assert not made.exists("/root/f/x")


def test_a_folder_is_claimed_once() -> None:
    made = space(MemoryDisk())
    assert (made.claim("/root/f/w1"), made.claim("/root/f/w1")) == (True, False)
    assert made.claimed("/root/f/w1")
    assert made.names("/root/nothing") == []


@pytest.mark.parametrize("kind", [MemoryDisk, Apart])
def test_a_file_that_never_changes_is_shared_where_it_can_be(kind: type[MemoryDisk]) -> None:
    disk = kind()
    made = space(disk)
    made.put_file("/local/a", "/root/f/a", immutable=True)
    assert read_whole(disk, "/root/f/a") == b"content"
    assert (disk.identity("/local/a") == disk.identity("/root/f/a")) is (kind is MemoryDisk)
    assert made.share_file("/root/f/a", "/local/b") is (kind is MemoryDisk)


def test_a_file_that_may_change_is_copied() -> None:
    disk = MemoryDisk()
    made = space(disk)
    made.put_file("/local/a", "/root/f/a", immutable=False)
    made.fetch_file("/root/f/a", "/local/b")
    assert len({disk.identity(path) for path in ("/local/a", "/root/f/a", "/local/b")}) == 3


def test_what_is_missing_in_the_root_is_missing_and_no_other_error() -> None:
    made = space(MemoryDisk())
    for act in (made.share_file, made.fetch_file):
        with pytest.raises(FileNotFoundError):
            act("/root/f/none", "/local/c")
