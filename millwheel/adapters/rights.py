"""The permissions of files that a run creates: for its user, and for the group of its root, if it
has one.

Each process of a run calls :func:`keep_private` first (``processes/process_start.py``). Results are
the exception: they have the permissions that the umask of the user gives them
(:func:`users_umask`).
"""

from __future__ import annotations

import grp
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from millwheel.errors import SetupError

UMASK_VARIABLE = "MILLWHEEL_UMASK"
"""The umask of the user who started the run, in octal, for its processes."""
PRIVATE, SHARED = 0o077, 0o027
"""Fixed: the umask of a process whose files are its user's alone, or also for a group to read."""
_WRITE = 0o022  # Fixed: the permission of group and others to write
_SHARED_BITS = stat.S_ISGID | stat.S_IXGRP
_lock = threading.Lock()
_open_blocks: list[int] = []


def keep_private(beside: str = "") -> None:
    """Create files of this process and its children from here on for their user alone, and for the
    group of the folder ``beside`` if that lets its group in."""
    before = os.umask(PRIVATE)
    os.environ.setdefault(UMASK_VARIABLE, f"{before:03o}")
    if beside and group_of(beside) is not None:
        os.umask(SHARED)


def users_umask() -> int | None:
    """The umask that the user had when the run was started; None in a process that has not called
    :func:`keep_private`."""
    try:
        return int(os.environ[UMASK_VARIABLE], 8) & 0o777
    except (KeyError, ValueError):
        return None


def umask_of_results(path: str) -> int | None:
    """The umask for a new result at ``path``: that of the user, and never more for others than its
    folder grants them. None where there is no such umask."""
    mask = users_umask()
    if mask is None:
        return None
    folder = os.stat(os.path.dirname(path) or ".").st_mode
    closed = (0 if folder & stat.S_IXGRP else 0o070) | (0 if folder & stat.S_IXOTH else 0o007)
    return mask | closed


@contextmanager
def under_users_umask() -> Iterator[None]:
    """Files created within the block, by any thread, have the permissions of the user's umask. For
    libraries that create results themselves: nothing of the run's own is exposed, because its root
    is closed."""
    umask = users_umask()
    if umask is None:
        yield
        return
    with _lock:
        _open_blocks.append(os.umask(umask))
    try:
        yield
    finally:
        with _lock:
            first = _open_blocks[0]
            _open_blocks.pop()
            if not _open_blocks:
                os.umask(first)


def close_to_others(folder: Path, group: str = "") -> str:
    """Create a folder that its user alone can enter, and ``group`` can read, or make it so. Returns
    a warning, "" for none: the permissions of a folder of another user stay as they are.

    Raises SetupError for a group that does not exist, or to which this user may not give it.
    """
    with under_users_umask():
        folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if os.stat(folder).st_uid == os.geteuid():
        _own(folder, group)
        return ""
    if group:
        raise SetupError(
            f"--group {group}: {folder} belongs to another user, who alone can share it"
        )
    return _writable(folder)


def _own(folder: Path, group: str) -> None:
    status = os.stat(folder)
    if group:
        number = _group_number(group)
        try:
            os.chown(folder, -1, number)
        except PermissionError:
            raise SetupError(
                f"--group {group}: you are not in this group, so you cannot share {folder} with it"
            ) from None
    # setgid: files created below it belong to the group, too
    mode = 0o2750 if group else 0o700
    if stat.S_IMODE(status.st_mode) != mode:
        os.chmod(folder, mode)


def _group_number(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SetupError(
            f"--group {group}: this machine has no such group; `getent group` lists them"
        ) from None


def group_of(folder: str | Path) -> int | None:
    """The group that a folder of this machine is shared with, as :func:`close_to_others` does it;
    None when there is none, or no such folder."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_gid if status.st_mode & _SHARED_BITS == _SHARED_BITS else None


def refuse_writable(path: Path) -> None:
    """Raise SetupError for a file or folder that others may write: its content cannot be trusted
    then. Raises OSError when there is none."""
    if sentence := _writable(path):
        raise SetupError(sentence)


def _writable(path: Path) -> str:
    """Whether others may write a file or folder, as a sentence; "" if not. In a folder with the
    sticky bit they may not touch what is yours."""
    status = os.stat(path)
    folder = path if stat.S_ISDIR(status.st_mode) else path.parent
    believed = {0, os.geteuid()}
    if group_of(folder) in {
        os.getegid(),
        *os.getgroups(),
    }:  # the owner of a shared folder is trusted by its group
        believed.add(os.stat(folder).st_uid)
    if status.st_uid not in believed:
        return (
            f"{path} belongs to another user (uid {status.st_uid}), who may change it: make it"
            " yours with chown"
        )
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & _WRITE and not sticky:
        return f"{path} can be written by others; make it yours alone: chmod go-w {path}"
    return ""


def private_file(path: Path) -> None:
    """Create a file, unless it exists, that only its user can open: with a descriptor for
    reading others could lock it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) != 0o600 and status.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Create a file that its user alone can read, complete and durable or not at all. Nothing
    happens if another process is quicker."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    with open(
        os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb"
    ) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(staged, path)
    os.unlink(staged)


def lock_file(path: Path) -> IO[str]:
    """A file to lock, open for reading and writing, which other users cannot lock."""
    private_file(path)
    return open(path, "r+")
