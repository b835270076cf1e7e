"""An output folder belongs to one root."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.connect.sinks.files.marker import claim
from millwheel.errors import SetupError
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.faulty_files import FaultyFiles, Killed, fail_when, kill_at


def test_a_folder_is_made_with_its_parents_and_claimed_again_by_the_same_root(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path / "a" / "b")
    claim(PosixFiles(), folder, "root-1")
    claim(PosixFiles(), folder, "root-1")
    assert os.listdir(folder) == [".millwheel"]


def test_the_results_of_another_root_are_refused() -> None:
    disk = MemoryDisk()
    claim(disk, "/out", "root-1")
    with pytest.raises(
        SetupError, match=r"holds the results of another root \(root-1\); choose another folder"
    ):
        claim(disk, "/out", "root-2")


def test_results_of_an_unknown_root_are_refused_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    claim(PosixFiles(), str(tmp_path), "root-1")
    other = tmp_path / "other"
    other.mkdir()
    (other / "part-x-00000000.jsonl").touch()
    with pytest.raises(SetupError, match=r"already holds results .* of an unknown root"):
        claim(PosixFiles(), str(other), "root-1")


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(SetupError, match="a part of the path is a file; choose another path"):
        claim(PosixFiles(), str(tmp_path / "out"), "root-1")


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("make_dir", errno.EACCES, "give this user permission"),
        ("link", errno.EPERM, "hard links"),
        ("write_at", errno.ENOSPC, "the disk is full; free some space"),
        ("create", errno.EROFS, "read-only"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(
    call: str, number: int, words: str
) -> None:
    with pytest.raises(SetupError, match=words):
        claim(FaultyFiles(MemoryDisk(), before=fail_when(call, number)), "/out", "root-1")


def test_a_folder_that_became_read_only_is_refused_too() -> None:
    disk = MemoryDisk()
    claim(disk, "/out", "root-1")
    with pytest.raises(SetupError, match="read-only"):
        claim(FaultyFiles(disk, before=fail_when("create", errno.EROFS)), "/out", "root-1")


def test_after_a_crash_at_any_call_the_same_root_can_claim_again() -> None:
    whole = FaultyFiles(MemoryDisk())
    claim(whole, "/out", "root-1")
    for number in range(whole.calls):
        disk = MemoryDisk()
        with pytest.raises(Killed):
            claim(FaultyFiles(disk, after=kill_at(number)), "/out", "root-1")
        disk.crash()
        claim(disk, "/out", "root-1")
        with pytest.raises(SetupError, match="another root"):
            claim(disk, "/out", "root-2")
