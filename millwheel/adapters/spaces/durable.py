"""Operations of the durable store on single file system calls: whole reads, and files that appear
complete or not at all.

A name is claimed with ``link``: it fails when the name exists, and the file it names was synced
before, so half of it is never seen. ``rename`` would silently replace, and an exclusive create
can leave a torn file behind.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from uuid import uuid4

from millwheel.adapters.spaces.files import Files
from millwheel.errors import invariant

_CHUNK_BYTES = 4 << 20  # bytes that are copied at once
TEMPORARY = ".tmp-"


def create_if_absent(files: Files, folder: str, name: str, data: bytes, staged: str = "") -> bool:
    """Make ``folder/name`` with this content durable, unless it exists. True when it is ours.

    Call it with content that nobody else writes (a put-id in it): when the answer to a create was
    lost, an existing file is compared, and counts as ours when it is the same.
    ``staged`` names the temporary file.
    """
    temporary = f"{folder}/{staged or TEMPORARY + uuid4().hex}"
    try:
        write_new(files, temporary, data)
        ours = _linked(files, temporary, f"{folder}/{name}", data)
    finally:
        with contextlib.suppress(OSError):  # left-overs are swept with the folder
            files.unlink(temporary)
    # Also if another process was first: we act on its content, so it must survive a power cut.
    files.sync_dir(folder)
    return ours


def _linked(files: Files, temporary: str, target: str, data: bytes) -> bool:
    try:
        files.link(temporary, target)
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):  # it was another's, and is deleted by now
            return read_whole(files, target) == data
        return False
    return True


def write_new(files: Files, path: str, data: bytes) -> None:
    """A new file with synced content. Its name is not durable until its folder is synced."""
    fd = files.create(path)
    try:
        write_all(files, fd, data, 0)
        files.sync(fd)
    finally:
        files.close(fd)


def write_all(files: Files, fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte of ``data`` at ``offset``, in one call unless the system takes less."""
    done = files.write_at(fd, data, offset)
    while done < len(data):
        wrote = files.write_at(fd, memoryview(data)[done:], offset + done)
        if wrote <= 0:
            raise OSError(errno.EIO, f"the system takes no more after {done} of {len(data)} bytes")
        done += wrote
    # The next group is written behind the counted bytes: a gap would be the end of the journal.
    invariant(done == len(data), f"{done} of {len(data)} bytes were written at {offset}")


def read_whole(files: Files, path: str) -> bytes:
    """The content of a file as it is now."""
    fd = files.open_read(path)
    try:
        return read_open(files, fd)
    finally:
        files.close(fd)


def read_open(files: Files, fd: int) -> bytes:
    """The content of an open file as it is now."""
    parts: list[bytes] = []
    at, size = 0, files.size(fd)
    while at < size and (part := files.read_at(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def chunks(files: Files, path: str) -> Iterator[bytes]:
    """The content of a file that may be larger than memory, piece by piece."""
    fd = files.open_read(path)
    try:
        at = 0
        while part := files.read_at(fd, _CHUNK_BYTES, at):
            yield part
            at += len(part)
    finally:
        files.close(fd)


def copy_file(files: Files, source: str, target: str, durable: bool = True) -> None:
    """Copy to a new file, and sync it if it must be ``durable``."""
    fd = files.create(target)
    try:
        at = 0
        for part in chunks(files, source):
            write_all(files, fd, part, at)
            at += len(part)
        if durable:
            files.sync(fd)
    finally:
        files.close(fd)


def sync_file(files: Files, path: str) -> None:
    """Make the content of a file durable."""
    fd = files.open_read(path)
    try:
        files.sync(fd)
    finally:
        files.close(fd)


def make_dirs(files: Files, path: str, durable: bool = True) -> None:
    """Create a folder and the folders above it, durably unless ``durable`` is false. A folder that
    exists may not be durable, because its creator has died: its name is synced in any case."""
    parent = path.rpartition("/")[0]
    if not files.exists(path):
        if parent:
            make_dirs(files, parent, durable)
        with contextlib.suppress(FileExistsError):
            files.make_dir(path)
    if durable:
        files.sync_dir(parent or "/")


def remove_tree(files: Files, path: str) -> None:
    """Remove a folder and the files directly in it. An absent folder is ignored."""
    if not files.exists(path):
        return
    # Without a sync: it is scratch, and files that a power cut brings back are removed anew.
    for name in files.list_dir(path):
        files.unlink(f"{path}/{name}")
    files.remove_dir(path)
