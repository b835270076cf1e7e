"""Checks, before anything relies on a root, that it keeps the promises on which everything else is
built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from millwheel.adapters.spaces.durable import TEMPORARY, make_dirs, read_whole, write_new
from millwheel.adapters.spaces.files import Files, PosixFiles, explained
from millwheel.adapters.spaces.object_space import ReplacingSpace
from millwheel.errors import MillwheelError, SetupError

NEED_BYTES = 256 << 20
"""Room for some journal segments and snapshots; with less a run would soon stop."""
_HTTP_CONDITIONS = ("If-None-Match", "If-Match")
_CONDITIONS = {"gs": ("x-goog-if-generation-match: 0", "x-goog-if-generation-match")}
"""The condition by which a store creates and replaces an object."""


def probe(root: str, files: Files | None = None, need_bytes: int = NEED_BYTES) -> None:
    """Check that ``root`` can be written and synced, refuses to create a name twice, and has room.

    Raises SetupError with the reason. Leaves nothing behind.
    """
    files, folder = files or PosixFiles(), str(Path(root).absolute())
    try:
        make_dirs(files, folder)
        with _temporary(files, folder) as first, _temporary(files, folder) as second:
            _check_create_if_absent(files, folder, first, second)
        free = files.free_bytes(folder)
    except OSError as ex:
        raise SetupError(
            f"the root {root} cannot hold a pipeline: {explained(ex, 'try it out')}"
        ) from ex
    if free < need_bytes:
        raise SetupError(
            f"the root {root} has {free >> 20} MB left and needs at least {need_bytes >> 20}: free"
            " some space, or choose another root"
        )


def _check_create_if_absent(files: Files, folder: str, first: str, second: str) -> None:
    """Two claims to one name: the second must fail, and must not change the content of the
    first."""
    write_new(files, first, b"first")
    write_new(files, second, b"second")
    with _temporary(files, folder) as name:
        _link(files, first, name, folder)
        files.sync_dir(folder)
        refused = False
        try:
            files.link(second, name)
        except FileExistsError:
            refused = True
        if not refused or read_whole(files, name) != b"first":
            raise SetupError(
                f"the file system of {folder} lets a second process take a name that exists, so a"
                " dead worker could come back and write: choose a root on a file system with"
                " working hard links (not an S3 mount)"
            )


def _link(files: Files, source: str, target: str, folder: str) -> None:
    try:
        files.link(source, target)
    except OSError as ex:
        raise SetupError(
            f"the file system of {folder} has no hard links ({ex.strerror or ex}), which journals"
            " need: choose a root on a local disk, NFS, or another POSIX file system"
        ) from ex


@contextlib.contextmanager
def _temporary(files: Files, folder: str) -> Iterator[str]:
    """A name that is free, and free again afterwards."""
    path = f"{folder}/{TEMPORARY}probe-{uuid4().hex}"
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            files.unlink(path)


def probe_objects(space: ReplacingSpace) -> None:
    """Check that an object store takes, shows and gives back objects, and heeds both conditions of
    a write.

    Raises SetupError with the reason. Leaves nothing behind.
    """
    key = f"{space.root}/{TEMPORARY}probe-{uuid4().hex}"
    try:
        _check_conditions(space, key)
    except OSError as ex:
        raise SetupError(
            f"the root {space.root} cannot hold a pipeline: {explained(ex, 'try it out')}"
        ) from ex
    finally:
        with contextlib.suppress(OSError, MillwheelError):
            space.delete(key)


def _check_conditions(space: ReplacingSpace, key: str) -> None:
    """Stores have been seen that accept the condition of a write and ignore it."""
    creating, replacing = _CONDITIONS.get(space.kind(), _HTTP_CONDITIONS)
    if not space.create(key, b"first") or key.rpartition("/")[2] not in space.names(space.root):
        raise SetupError(
            f"the store of {space.root} does not show an object that was just written: choose a"
            " consistent store"
        )
    if space.create(key, b"second") or space.get(key) != b"first":
        raise _ignores(space, creating)
    first = space.version(key)
    if first is None or space.replace(key, b"third", first.version) is None:
        raise SetupError(
            f"the store of {space.root} does not replace an object that is as it was read: choose"
            " another"
        )
    if space.replace(key, b"fourth", first.version) is not None or space.get(key) != b"third":
        raise _ignores(space, replacing)


def _ignores(space: ReplacingSpace, condition: str) -> SetupError:
    return SetupError(
        f"the store of {space.root} ignores the condition {condition} of a write, so a dead worker"
        " could come back and write: choose a store with conditional writes (AWS S3, MinIO, Ceph,"
        " Cloudflare R2 in their current versions, Google Cloud Storage, Azure Blob Storage)"
    )
