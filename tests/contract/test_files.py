"""The contract of the file system seam, on the operating system and on the disk in memory that
stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.durable import read_whole, write_new
from millwheel.adapters.spaces.files import Files, PosixFiles
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture(params=("memory", "posix"))
def files(request: pytest.FixtureRequest) -> Files:
    return MemoryDisk() if request.param == "memory" else PosixFiles()


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    if isinstance(files, PosixFiles):
        return str(tmp_path)
    files.make_dir("/root")
    return "/root"


def test_a_name_is_linked_once_and_keeps_its_content(files: Files, root: str) -> None:
    write_new(files, f"{root}/a", b"one")
    write_new(files, f"{root}/b", b"two")
    files.link(f"{root}/a", f"{root}/c")
    for target in ("a", "b", "c"):
        with pytest.raises(FileExistsError):
            files.link(f"{root}/a", f"{root}/{target}")
    assert read_whole(files, f"{root}/c") == b"one"
    files.unlink(f"{root}/a")
    assert read_whole(files, f"{root}/c") == b"one"
    assert sorted(files.list_dir(root)) == ["b", "c"]


def test_links_are_one_file(files: Files, root: str) -> None:
    write_new(files, f"{root}/a", b"one")
    write_new(files, f"{root}/b", b"one")
    files.link(f"{root}/a", f"{root}/c")
    assert files.identity(f"{root}/a") == files.identity(f"{root}/c") != files.identity(f"{root}/b")
    before = files.identity(f"{root}/a")
    fd = files.open_write(f"{root}/c")
    files.write_at(fd, b"longer", 0)
    files.close(fd)
    assert files.identity(f"{root}/a") != before
    assert read_whole(files, f"{root}/a") == b"longer"


def test_a_file_is_created_once(files: Files, root: str) -> None:
    files.close(files.create(f"{root}/a"))
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a")


def test_what_is_missing_is_said_to_be_missing(files: Files, root: str) -> None:
    assert not files.exists(f"{root}/a")
    assert not files.exists(f"{root}/a/b")
    for action in (
        files.open_read,
        files.open_write,
        files.unlink,
        files.list_dir,
        files.identity,
        files.remove_dir,
    ):
        with pytest.raises(FileNotFoundError):
            action(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        files.make_dir(f"{root}/a/b")


def test_an_error_is_never_taken_for_missing(files: Files, root: str) -> None:
    write_new(files, f"{root}/a", b"")
    with pytest.raises(NotADirectoryError):
        files.exists(f"{root}/a/b")


def test_folders_are_made_once_and_removed_empty(files: Files, root: str) -> None:
    files.make_dir(f"{root}/d")
    with pytest.raises(FileExistsError):
        files.make_dir(f"{root}/d")
    write_new(files, f"{root}/d/a", b"")
    with pytest.raises(OSError, match=r"ENOTEMPTY|not empty"):
        files.remove_dir(f"{root}/d")
    files.unlink(f"{root}/d/a")
    files.sync_dir(f"{root}/d")
    files.remove_dir(f"{root}/d")
    assert not files.exists(f"{root}/d")


def test_bytes_are_written_read_and_cut_at_offsets(files: Files, root: str) -> None:
    fd = files.create(f"{root}/a")
    assert files.write_at(fd, b"hello", 2) == 5
    assert files.write_at(fd, memoryview(b"HE"), 0) == 2
    assert files.size(fd) == 7
    assert files.read_at(fd, 100, 0) == b"HEhello"
    assert files.read_at(fd, 2, 5) == b"lo"
    assert files.read_at(fd, 2, 7) == b""
    files.truncate(fd, 3)
    assert files.read_at(fd, 100, 0) == b"HEh"
    files.sync_data(fd)
    files.sync(fd)
    files.close(fd)
    with pytest.raises(OSError, match=r"EBADF|Bad file"):
        files.size(fd)


def test_an_open_file_outlives_its_name(files: Files, root: str) -> None:
    write_new(files, f"{root}/a", b"content")
    fd = files.open_read(f"{root}/a")
    files.unlink(f"{root}/a")
    assert files.read_at(fd, 100, 0) == b"content"
    files.close(fd)


def test_there_is_some_room(files: Files, root: str) -> None:
    assert files.free_bytes(root) > 0


# --- what only the disk in memory can do
