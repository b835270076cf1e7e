from __future__ import annotations

import os
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from millwheel.adapters.snapshots.blobs import BlobCache, Digests, cache_beside
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


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(str(tmp_path / "blobs"), limit_bytes=250)


def table(folder: Path, name: str, size: int = 100) -> str:
    path = folder / name
    path.write_bytes(os.urandom(size))
    return str(path)


def test_what_was_kept_is_found_by_its_content_although_its_file_is_gone(
    cache: BlobCache, tmp_path: Path
) -> None:
    path = table(tmp_path, "a")
    data = Path(path).read_bytes()
    cache.add("d1", 100, path)
    cache.add("d1", 100, path)
    os.unlink(path)
    assert cache.take("d1", 100, str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == data
    assert not cache.take("d1", 101, str(tmp_path / "c"))
    assert not cache.take("d2", 100, str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_when_there_is_no_room_those_go_that_were_not_used_for_longest(
    cache: BlobCache, tmp_path: Path
) -> None:
    for name in ("d1", "d2"):
        cache.add(name, 100, table(tmp_path, name))
    assert cache.take("d1", 100, str(tmp_path / "used"))
    cache.add("d3", 100, table(tmp_path, "d3"))
    here = [
        name
        for name in ("d1", "d2", "d3")
        if cache.take(name, 100, str(tmp_path / f"again-{name}"))
    ]
    assert here == ["d1", "d3"]


def test_a_file_that_was_cut_is_not_taken(cache: BlobCache, tmp_path: Path) -> None:
    cache.add("d1", 100, table(tmp_path, "a", 99))
    assert not cache.take("d1", 100, str(tmp_path / "b"))


def test_a_folder_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file")
    cache = BlobCache(str(tmp_path / "blobs"))
    cache.add("d1", 100, table(tmp_path, "a"))
    assert not cache.take("d1", 100, str(tmp_path / "b"))


def test_a_place_where_others_can_put_files_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "slot-0").mkdir()
    assert cache_beside(str(tmp_path / "slot-0")) is not None
    tmp_path.chmod(0o777)
    assert cache_beside(str(tmp_path / "slot-0")) is None
    tmp_path.chmod(0o700)
