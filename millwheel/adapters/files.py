"""The few file operations that durability rests on, in one place, with errors in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4

from millwheel.errors import MillwheelError, SetupError, UnavailableError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EROFS: "it is read-only"}


def in_words(error: OSError, doing: str) -> MillwheelError:
    """The error to raise for a failed file operation: SetupError when somebody must make room or give rights."""
    if error.errno in _FULL:
        return SetupError(f"{doing}: {_FULL[error.errno]}; make room and start again, nothing that was acked is lost")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SetupError(f"{doing}: permission denied; give this user the right to write there")
    return UnavailableError(f"{doing}: {os.strerror(error.errno or 0)}")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create_if_absent(path: Path, data: bytes) -> bool:
    """Create a file with all its bytes, durable, or find that it exists (False). Never a torn one.

    ``link`` is the primitive: ``rename`` overwrites in silence, and an exclusive open shows half a file.
    """
    temp = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    fd = os.open(temp, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temp)
    sync_folder(path.parent)
    return True


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, however the system cuts it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
