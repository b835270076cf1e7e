"""The meaning of a failed system call for results, and the advice to the user."""

from __future__ import annotations

import errno

from millwheel.errors import MillwheelError, SetupError, UnavailableError

_FOR_PEOPLE = {
    errno.EACCES: "give this user permission to write there, or choose another path",
    errno.EPERM: (
        "give this user permission to write there, and use a file system that has hard links"
    ),
    errno.EOPNOTSUPP: "the file system has no hard links; choose another path",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.ENOENT: "the folder is gone; something removed it while results were written",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter one",
    errno.EPIPE: "nobody reads there any more; keep the reader alive, or use the sink 'files'",
}
_FOR_TIME = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; raise it or free some space",
}


def in_words(error: OSError, doing: str) -> MillwheelError:
    """The error to raise: SetupError where a person must change something, UnavailableError where a
    retry may work."""
    what = f"cannot {doing}: {error.strerror or error}"
    if error.errno in _FOR_PEOPLE:
        return SetupError(f"{what}; {_FOR_PEOPLE[error.errno]}")
    return UnavailableError(
        f"{what}; {_FOR_TIME.get(error.errno or 0, 'look at the disk and its mount')}"
    )
