"""The shared content of a root in an object store: the shipped pipeline, the lists of inputs, and
the savepoint that the root began with. All of it is in one object, so that it changes as a
whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.object_space import ObjectSpace, ReplacingSpace
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.control.roots.root import IDENTITY
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import CorruptionError, SetupError, UnavailableError

_NAME = "shipped.msgpack"
_FOLDERS = ("pipeline", "inputs")
_FILES = ("restored.json", IDENTITY)
_TRIES = 3  # attempts while others ship to the same root


def share(space: ReplacingSpace, folder: Path) -> None:
    """Write the shared parts of ``folder`` to the root, in place of the former ones.

    Raises UnavailableError when others keep replacing it.
    """
    key, data = f"{space.root}/{_NAME}", pack(folder)
    for _ in range(_TRIES):
        content = space.version(key)
        if content is not None and content.data == data:
            return
        if (
            space.create(key, data)
            if content is None
            else space.replace(key, data, content.version)
        ):
            return
    raise UnavailableError(f"{key} changes while it is written: is another driver using this root?")


def fetch(space: ObjectSpace, folder: Path) -> bool:
    """Replace the shared parts of ``folder`` by those of the root; False when the root has none."""
    key = f"{space.root}/{_NAME}"
    try:
        data = space.get(key)
    except FileNotFoundError:
        return False
    try:
        unpack(data, folder)
    except CorruptionError as error:
        raise CorruptionError(
            f"{key} cannot be used: {error}. Start the run again: the driver writes it"
        ) from error
    return True


@contextmanager
def shared_folder(root: str) -> Iterator[str]:
    """The folder with the shipped files of a root: the root itself, or a copy that lasts as long as
    the context."""
    if not in_bucket(root):
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="millwheel-") as folder:
        yield fetched(root, folder)


def fetched(root: str, folder: str) -> str:
    """The same for the life of a process: the root itself, or ``folder`` with a copy. Raises
    SetupError."""
    if not in_bucket(root):
        return root
    if not fetch(open_space(root), Path(folder)):
        raise SetupError(f"{root} holds no pipeline that `millwheel run` shipped")
    return folder


def pack(folder: Path) -> bytes:
    """The files below the shared parts of a folder, as bytes."""
    below = [path for name in _FOLDERS for path in (folder / name).rglob("*")]
    paths = sorted(path for path in (*below, *(folder / name for name in _FILES)) if path.is_file())
    return msgspec.msgpack.encode(
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    )


def unpack(data: bytes, folder: Path) -> None:
    """The inverse of :func:`pack`. Raises CorruptionError for other bytes, and for names that lead
    elsewhere."""
    try:
        files = msgspec.msgpack.decode(data, type=dict[str, bytes])
    except DAMAGE as error:
        raise CorruptionError(f"it holds no files: {error}") from error
    for name in files:
        parts = PurePosixPath(name).parts
        inside = len(parts) > 1 and parts[0] in _FOLDERS and ".." not in parts
        if not (inside or name in _FILES) or "\0" in name:
            raise CorruptionError(f"it names the file {name!r}, which cannot be")
    for name in _FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
