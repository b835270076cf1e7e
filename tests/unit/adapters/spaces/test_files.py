from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles, explained, mounted_kind
from millwheel.errors import SetupError, UnavailableError

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw - nfs4 server:/export rw,vers=4.2
31 30 0:41 / /data/fast\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /data rw - tmpfs tmpfs rw
not a mount line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/u", "ext4"),
        ("/", "ext4"),
        ("/data", "tmpfs"),
        ("/data/x", "tmpfs"),
        ("/database", "ext4"),
        ("/data/fast disk/x", "xfs"),
    ],
)
def test_the_innermost_and_latest_mount_decides(path: str, kind: str) -> None:
    assert mounted_kind(path, MOUNTS) == kind


def test_without_a_list_of_mounts_nothing_is_known() -> None:
    assert mounted_kind("/home", "") == ""


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EROFS, SetupError, "writable"),
        (errno.EACCES, SetupError, "writable"),
        (errno.ENOSPC, UnavailableError, "Free some space"),
        (errno.EIO, UnavailableError, "Check the disk"),
    ],
)
def test_an_error_says_what_to_do(number: int, kind: type[Exception], words: str) -> None:
    error = explained(OSError(number, os.strerror(number)), "write x")
    assert type(error) is kind
    assert str(error).startswith(f"cannot write x: {os.strerror(number)}. ")
    assert words in str(error)


def test_an_error_that_is_no_missing_file_is_never_taken_for_no(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        PosixFiles().exists(str(tmp_path / "file" / "SEAL"))
    assert not PosixFiles().exists(str(tmp_path / "SEAL"))


def test_a_file_keeps_its_identity_under_two_names(tmp_path: Path) -> None:
    files = PosixFiles()
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    files.close(files.create(one))
    files.link(one, two)
    assert files.identity(one) == files.identity(two)
    with pytest.raises(FileExistsError):
        files.link(one, two)
    with pytest.raises(FileExistsError):
        files.create(one)


def test_the_kind_and_the_room_of_a_real_folder_are_known(tmp_path: Path) -> None:
    files = PosixFiles()
    assert files.free_bytes(str(tmp_path)) > 0
    assert isinstance(files.kind(str(tmp_path)), str)
