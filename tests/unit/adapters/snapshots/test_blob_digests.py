from __future__ import annotations

from xxhash import xxh3_128_hexdigest

from millwheel.adapters.snapshots.blob_digests import Digests
from millwheel.adapters.spaces.durable import make_dirs, write_all
from millwheel.tools.testing.memory.disk import MemoryDisk


class Reading(MemoryDisk):
    reads = 0

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        self.reads += 1
        return super().read_at(fd, size, offset)


def disk_with(**files: bytes) -> Reading:
    disk = Reading()
    make_dirs(disk, "/d")
    for name, data in files.items():
        fd = disk.create(f"/d/{name.replace('_', '.')}")
        write_all(disk, fd, data, 0)
        disk.close(fd)
    return disk


def test_a_table_is_read_once_under_whatever_name() -> None:
    disk = disk_with(a_sst=b"content")
    disk.link("/d/a.sst", "/d/b.sst")
    digests = Digests(disk)
    assert digests.of("/d/a.sst", disk.identity("/d/a.sst")) == xxh3_128_hexdigest(b"content")
    reads = disk.reads
    assert digests.of("/d/b.sst", disk.identity("/d/b.sst")) == xxh3_128_hexdigest(b"content")
    assert disk.reads == reads


def test_a_file_that_may_change_is_read_each_time() -> None:
    disk = disk_with(CURRENT=b"one")
    digests, identity = Digests(disk), disk.identity("/d/CURRENT")
    digests.of("/d/CURRENT", identity)
    fd = disk.open_write("/d/CURRENT")
    write_all(disk, fd, b"two", 0)
    assert digests.of("/d/CURRENT", identity) == xxh3_128_hexdigest(b"two")


def test_somebodys_word_is_taken_for_a_table() -> None:
    disk = disk_with(a_sst=b"content")
    digests, identity = Digests(disk), disk.identity("/d/a.sst")
    digests.remember(identity, "told")
    assert digests.of("/d/a.sst", identity) == "told"
    assert disk.reads == 0
