"""The file system calls that the durable store is made of, one method per call.

They are a seam: tests put a disk in memory here that forgets unsynced data, or one that fails at a
chosen call. Everything above is built from these calls alone, so an order of calls that is right on
that disk is right on a real one. Errors are those of :mod:`os`; the layer above turns them
into sentences.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from millwheel.adapters.rights import umask_of_results
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_fdatasync = os.fdatasync if sys.platform == "linux" else os.fsync


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies an immutable file without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int


class Files(Protocol):
    """Paths are strings, ``fd`` is an int that only the same object understands."""

    def make_dir(self, path: str) -> None: ...

    def list_dir(self, path: str) -> list[str]: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def exists(self, path: str) -> bool:
        """Raises OSError if the answer is unknown: an error is never taken for "no"."""

    def identity(self, path: str) -> FileIdentity: ...

    def link(self, source: str, target: str) -> None:
        """A second name for a file. FileExistsError when ``target`` exists: the primitive of every
        claim."""

    def unlink(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Give a file the name ``target`` in one step, even if another file has it.
        FileNotFoundError when there is no ``source`` (any more). It replaces silently: only for
        files that the holder of ``source`` may replace."""

    def create(self, path: str) -> int:
        """A new, empty file, open for writing. FileExistsError when there is one."""

    def open_write(self, path: str) -> int:
        """An existing file, for writing at offsets."""

    def open_read(self, path: str) -> int: ...

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """The number of bytes written, perhaps fewer than requested."""

    def read_at(self, fd: int, size: int, offset: int) -> bytes: ...

    def size(self, fd: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def sync_data(self, fd: int) -> None:
        """Make the content durable, and the metadata that reading it back needs."""

    def sync(self, fd: int) -> None: ...

    def close(self, fd: int) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def kind(self, path: str) -> str:
        """The type of the file system ("ext4", "nfs4", ...), "" if it is unknown."""


class PosixFiles:
    """:class:`Files` on the operating system."""

    def make_dir(self, path: str) -> None:
        os.mkdir(path)

    def list_dir(self, path: str) -> list[str]:
        return os.listdir(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def identity(self, path: str) -> FileIdentity:
        status = os.stat(path)
        return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def create(self, path: str) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o640)

    def open_write(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync_data(self, fd: int) -> None:
        _fdatasync(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def free_bytes(self, path: str) -> int:
        statistics = os.statvfs(path)
        return statistics.f_bavail * statistics.f_frsize

    def kind(self, path: str) -> str:
        return mounted_kind(os.path.realpath(path), _mounts())


class ResultFiles(PosixFiles):
    """Files for the user: with the permissions of the umask that the user has chosen."""

    def make_dir(self, path: str) -> None:
        super().make_dir(path)
        if (mask := umask_of_results(path)) is not None:
            os.chmod(path, 0o777 & ~mask | os.stat(path).st_mode & stat.S_ISGID)

    def create(self, path: str) -> int:
        fd = super().create(path)
        if (mask := umask_of_results(path)) is not None:
            os.fchmod(fd, 0o666 & ~mask)
        return fd


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def mounted_kind(path: str, mountinfo: str) -> str:
    """The file system type of the innermost mount that holds ``path``; "" when none does.

    ``mountinfo`` is the text of ``/proc/self/mountinfo`` (proc(5)); of two mounts on one path the
    later counts.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        fields, separator, rest = line.partition(" - ")
        if not separator:
            continue
        point = fields.split(" ")[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), rest.split(" ")[0]
    return kind


def explained(ex: OSError, doing: str) -> MillwheelError:
    """The error to raise for an OSError: the failed operation, the reason and the remedy."""
    reason = ex.strerror or str(ex)
    if ex.errno in _FORBIDDEN:
        return SetupError(
            f"cannot {doing}: {reason}. Make the root writable for every worker and the master"
        )
    if ex.errno in _FULL:
        return UnavailableError(
            f"cannot {doing}: {reason}. Free some space on the file system of the root"
        )
    return UnavailableError(f"cannot {doing}: {reason}. Check the disk and the mount of the root")


@contextmanager
def explaining(doing: str) -> Iterator[None]:
    """Any OSError within becomes the error of :func:`explained`."""
    try:
        yield
    except OSError as ex:
        raise explained(ex, doing) from ex
