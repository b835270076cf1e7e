"""Durable files: what ``file://`` roots are made of.

``link()`` is the one primitive that both refuses an existing name and never shows a half-written file; after it
the directory is synced, or the name itself could vanish with the power.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millwheel.errors import MillwheelError, SetupError, UnavailableError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_SURROUNDINGS = {
    errno.EACCES: "give this user permission to write there",
    errno.EPERM: "give this user permission to write there, or use a file system that supports hard links",
    errno.EROFS: "the file system is mounted read-only; mount it writable or choose another root",
    errno.ENOTDIR: "a part of the path is a file; choose another root",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter root",
}
_TROUBLE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; raise it or free some space",
    errno.EIO: "the disk reports an I/O error; look at the system log and replace it",
    errno.ESTALE: "the network file system lost the file; check the mount",
}

@dataclass(frozen=True, slots=True)
class SystemCalls:
    """The calls of a commit, so that tests can let each of them fail."""

    pwritev: Callable[[int, Sequence[bytes], int], int] = os.pwritev
    fdatasync: Callable[[int], None] = os.fdatasync
    ftruncate: Callable[[int, int], None] = os.ftruncate
    stat: Callable[[str], object] = os.stat


TEMPORARY = ".tmp-"
"""How the names of unfinished files begin. They mean nothing and may be deleted by their directory's collector."""


def child(folder: Path, name: str) -> Path:
    """``folder/name``; SetupError unless ``name`` is a plain name that cannot lead out of ``folder``."""
    if not _NAME.fullmatch(name):
        raise SetupError(f"{name!r} cannot be a name below {folder}: use letters, digits, '_', '.' and '-'")
    return folder / name


def setup_error(ex: OSError, doing: str, path: str | os.PathLike[str]) -> MillwheelError:
    """The error of ours for a failed system call: SetupError where a person must change something first,
    UnavailableError where a later retry may work."""
    number = ex.errno or 0
    where = f"{doing} at {os.fspath(path)} failed: {ex.strerror or ex}"
    if number in _SURROUNDINGS:
        return SetupError(f"{where}; {_SURROUNDINGS[number]}")
    return UnavailableError(f"{where}; {_TROUBLE.get(number, 'try again, and look at the file system if it stays')}")


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> bool:
    """Create a directory and its missing parents, durably; False when it was there."""
    if folder.is_dir():
        return False
    make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    sync_folder(folder.parent)
    return True


def create_if_absent(path: Path, data: bytes) -> bool:
    """Publish ``data`` as ``path`` durably and all at once; False, and nothing changed, when the name is taken."""
    with temporary(path.parent) as temp:
        write_synced(temp, data)
        try:
            os.link(temp, path)
        except FileExistsError:
            # The winner may have crashed before it synced the directory; whoever relies on the name makes it last.
            sync_folder(path.parent)
            return False
        sync_folder(path.parent)
        return True


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """A fresh name in ``folder`` whose file, if any, is removed at the end."""
    temp = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        yield temp
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()


def write_synced(path: Path, data: bytes) -> None:
    """A new file with ``data``, on disk when this returns."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
