"""Files that become visible by a rename; test_layout.py has crashes and zombies."""

from __future__ import annotations

import pytest
import xxhash

from millwheel.connect.sinks.files.folder import FolderDestination
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.connect.sinks.files.pieces import Piece
from millwheel.errors import CorruptionError
from tests.fakes.memory_disk import MemoryDisk

DATA = b"{}\n"
PIECE = Piece(
    "a=1/part-x-00000000.jsonl", "part-x-00000000-1-1-0.tmp", 1, 3, xxhash.xxh3_64_intdigest(DATA)
)


def destination_on(disk: MemoryDisk) -> FolderDestination:
    destination = FolderDestination(disk, "/out")
    destination.check("root-1")
    return destination


def test_a_hidden_file_that_the_disk_has_damaged_is_not_shown() -> None:
    disk = MemoryDisk()
    destination_on(disk).hide([(PIECE.temp, b"xx\n")])
    with pytest.raises(CorruptionError, match="the disk damaged it"):
        destination_on(disk).publish(PIECE, 0)


def test_a_file_that_somebody_removed_before_it_was_published_is_missed() -> None:
    disk = MemoryDisk()
    destination = destination_on(disk)
    destination.hide([(PIECE.temp, DATA)])
    disk.unlink(f"/out/{HIDDEN}/{PIECE.temp}")
    with pytest.raises(CorruptionError, match="with 1 rows of results"):
        destination.publish(PIECE, 0)
