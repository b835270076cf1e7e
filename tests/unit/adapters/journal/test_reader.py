from __future__ import annotations

import pytest

from millwheel.adapters.journal.folder import SegmentFolder
from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.journal.reader import open_segments
from millwheel.adapters.spaces.durable import make_dirs, write_all
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk


class Racing(MemoryDisk):
    """The next whole reads of a file miss bytes that are being written: they show zeros there."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: tuple[int, int] = (0, 0)
        self.reads_left = 0

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        data = super().read_at(fd, size, offset)
        if self.reads_left == 0 or self.unseen[1] > len(data):
            return data
        self.reads_left -= 1
        low, high = self.unseen
        return data[:low] + bytes(high - low) + data[high:]


@pytest.fixture
def disk() -> Racing:
    disk = Racing()
    make_dirs(disk, "/root")
    writer = FileJournals("/root", "append", files=disk).create("w1")
    for entry in (b"a" * 50, b"b" * 50, b"c" * 50):
        writer.commit([entry])
    return disk


def test_a_read_that_overtakes_the_writer_ends_before_what_it_did_not_see(disk: Racing) -> None:
    fd = disk.open_read("/root/journal/w1/00000001.log")
    at = disk.read_at(fd, 1000, 0).index(b"b" * 50)
    disk.unseen, disk.reads_left = (at, at + 10), 1
    journals = FileJournals("/root", files=disk)
    assert list(journals.read("w1", -1)) == [b"a" * 50]
    assert list(journals.read("w1", -1)) == [b"a" * 50, b"b" * 50, b"c" * 50]


def test_bytes_that_stay_wrong_are_damage(disk: Racing) -> None:
    fd = disk.open_write("/root/journal/w1/00000001.log")
    at = disk.read_at(fd, 1000, 0).index(b"b" * 50)
    write_all(disk, fd, bytes(10), at)
    with pytest.raises(CorruptionError, match="whole one follows"):
        list(FileJournals("/root", files=disk).read("w1", -1))


def test_a_segment_that_vanishes_between_listing_and_opening_is_looked_for_again(
    disk: Racing,
) -> None:
    class Listing(SegmentFolder):
        __slots__ = ()
        left = [1, 2]

        def segments(self) -> list[int]:
            return [self.left.pop(), 1] if len(self.left) > 1 else [1]

    folder = Listing(FolderSpace("/root", disk), "/root/journal/w1", "w1", disk)
    before = disk.open_files()
    opened = open_segments(folder)
    assert list(opened) == [1]
    assert disk.open_files() == before + 1


def test_a_listing_that_never_comes_true_is_an_error(disk: Racing) -> None:
    class Lying(SegmentFolder):
        __slots__ = ()

        def segments(self) -> list[int]:
            return [7]

    with pytest.raises(CorruptionError, match="cannot be opened"):
        open_segments(Lying(FolderSpace("/root", disk), "/root/journal/w1", "w1", disk))
