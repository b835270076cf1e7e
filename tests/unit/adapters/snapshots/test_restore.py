"""What a snapshot needs is shared where it can be and copied where it must, and what is damaged is
named."""

from __future__ import annotations

import pytest
from xxhash import xxh3_128_hexdigest

from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.blobs import Digests
from millwheel.adapters.snapshots.restore import RestorePace, Restoring
from millwheel.adapters.spaces.durable import make_dirs, read_whole, write_all
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk


class Here:
    def __init__(self, copies: int = 1, **files: bytes) -> None:
        self.disk = MemoryDisk()
        for folder in ("/root/s", "/local"):
            make_dirs(self.disk, folder)
        blobs = {}
        for name, data in files.items():
            fd = self.disk.create(f"/root/s/{name}")
            write_all(self.disk, fd, data, 0)
            self.disk.close(fd)
            blobs[name.replace("_", ".")] = (name, len(data), xxh3_128_hexdigest(data))
        self.manifest = Manifest("s", 1, 0, 1, 1, blobs)  # type: ignore[arg-type]
        self.restoring = Restoring(
            FolderSpace("/root", self.disk), self.disk, Digests(self.disk), RestorePace(copies)
        )

    def bring(self) -> None:
        self.restoring.bring(self.manifest, "/root/s", "/local")

    def spoil(self, name: str, data: bytes) -> None:
        write_all(self.disk, self.disk.open_write(f"/root/s/{name}"), data, 0)


@pytest.mark.parametrize("copies", [1, 4])
def test_all_files_come_here_and_only_tables_are_shared(copies: int) -> None:
    here = Here(copies, a_sst=b"table", CURRENT=b"a.sst")
    here.bring()
    assert read_whole(here.disk, "/local/a.sst") == b"table"
    same = [
        here.disk.identity(f"/local/{n}") == here.disk.identity(f"/root/s/{b}")
        for n, b in (("a.sst", "a_sst"), ("CURRENT", "CURRENT"))
    ]
    assert same == [True, False], "what a store writes to must not be the snapshot itself"


def test_what_is_copied_is_checked_at_once_and_what_is_shared_in_its_own_time() -> None:
    here = Here(CURRENT=b"a.sst")
    here.spoil("CURRENT", b"b")
    with pytest.raises(CorruptionError, match="/root/s/CURRENT has 5 bytes with checksum"):
        here.bring()
    shared = Here(a_sst=b"table")
    shared.spoil("a_sst", b"T")
    shared.bring()
    with pytest.raises(CorruptionError, match=r"a_sst .*It is part of a snapshot that is in use"):
        list(shared.restoring.unverified())


def test_what_is_good_is_verified_once_and_a_cut_file_is_found_at_once() -> None:
    here = Here(a_sst=b"table")
    here.bring()
    assert list(here.restoring.unverified())
    assert not list(here.restoring.unverified())
    cut = Here(a_sst=b"table")
    fd = cut.disk.open_write("/root/s/a_sst")
    cut.disk.truncate(fd, 2)
    with pytest.raises(CorruptionError, match="has 2 bytes, not 5"):
        cut.bring()
