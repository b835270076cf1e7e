from __future__ import annotations

import pytest

from millwheel.adapters.spaces.durable import read_whole
from millwheel.adapters.stores.small import NAME, SmallStore, opened
from millwheel.errors import CorruptionError, MillwheelError
from millwheel.tools.testing.memory.disk import MemoryDisk

ENTRIES = [(b"a", b"1"), (b"b", b"22")]


def _disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dir("/scratch")
    SmallStore(disk, "s", ENTRIES).checkpoint("/scratch/c")
    return disk


def test_a_checkpoint_is_one_file_and_opens_as_it_was() -> None:
    disk = _disk()
    assert disk.list_dir("/scratch/c") == [NAME]
    store = opened(disk, "/scratch/c", "s")
    assert store is not None
    assert list(store.scan(b"")) == ENTRIES


def test_a_folder_without_that_file_is_none_of_a_small_store() -> None:
    disk = _disk()
    disk.make_dir("/scratch/other")
    assert opened(disk, "/scratch/other", "s") is None


@pytest.mark.parametrize("place", range(0, 54, 3))
def test_a_bit_that_flips_anywhere_in_a_checkpoint_is_found(place: int) -> None:
    disk = _disk()
    size = len(read_whole(disk, f"/scratch/c/{NAME}"))
    fd = disk.open_write(f"/scratch/c/{NAME}")
    byte = read_whole(disk, f"/scratch/c/{NAME}")[place % size]
    disk.write_at(fd, bytes([byte ^ 1]), place % size)
    with pytest.raises(CorruptionError, match="/scratch/c/small is damaged"):
        opened(disk, "/scratch/c", "s")


def test_a_checkpoint_that_cannot_be_written_says_whose_it_is() -> None:
    disk = _disk()
    with pytest.raises(MillwheelError, match="write a checkpoint of shard-7 to /nowhere/c"):
        SmallStore(disk, "shard-7").checkpoint("/nowhere/c")


def test_it_has_grown_when_it_holds_more_and_not_when_more_was_written() -> None:
    store = SmallStore(_disk(), "s")
    for _ in range(100):
        store.apply([(b"key", b"v" * 7)], [])
        assert not store.grown_beyond(10)
    store.apply([(b"other", b"v" * 30)], [])
    assert store.grown_beyond(10)
