"""The file operations of the files sink, each of which a crash may follow: the seam at which tests crash it."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from millwheel.errors import MillwheelError, SetupError, UnavailableError

_FOR_PEOPLE = {
    errno.EACCES: "give this user permission to write there, or choose another path",
    errno.EPERM: "give this user permission to write there, and use a file system that has hard links",
    errno.ENOTSUP: "the file system has no hard links; choose another path",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter one",
}
_FOR_TIME = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; raise it or free some space",
}


class Disk:
    """Raises OSError as :mod:`os` does; :func:`in_words` makes sentences of it."""

    def make_folder(self, folder: Path) -> None:
        """A folder with its missing parents; it may exist."""
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """A file with all its bytes, durable once :meth:`sync` was called on its folder. None when it fails."""
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):  # a full disk should not stay full of what failed on it
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. FileExistsError when somebody has that name."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing happens when it is gone."""
        path.unlink(missing_ok=True)

    def sync(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def names(self, folder: Path) -> list[str]:
        """All names in a folder, hidden ones too, sorted."""
        return sorted(os.listdir(folder))

    def size(self, path: Path) -> int:
        """Bytes of a file. FileNotFoundError when there is none."""
        return path.stat().st_size


def in_words(error: OSError, doing: str) -> MillwheelError:
    """The error to raise: SetupError where a person must change something, UnavailableError where a retry may work."""
    what = f"cannot {doing}: {error.strerror or error}"
    if error.errno in _FOR_PEOPLE:
        return SetupError(f"{what}; {_FOR_PEOPLE[error.errno]}")
    return UnavailableError(f"{what}; {_FOR_TIME.get(error.errno or 0, 'look at the disk and its mount')}")
