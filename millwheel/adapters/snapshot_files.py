"""Snapshots in files: blobs, and manifests that name them.

    snapshots/<shard>/<token>-<commit>-<file>     blobs; owner-qualified, so that a zombie's collection can
                                                  only reach what it could have made itself
    snapshots/<shard>/manifest-<number>.json      created if absent: the next number is a compare-and-set

SSTs never change once written: those that a parent manifest has already are referred to, not copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from millwheel.adapters.durable_files import create_if_absent, setup_error, sync_folder
from millwheel.errors import ConflictError, CorruptionError
from millwheel.ports import Manifest

KEPT_MANIFESTS = 2
_IMMUTABLE = ".sst"


class FileSnapshots:
    """All snapshots below ``<root>/snapshots``."""

    def __init__(self, root: str) -> None:
        self._folder = Path(root) / "snapshots"
        self._folder.mkdir(parents=True, exist_ok=True)

    def latest(self, shard: str) -> Manifest | None:
        """See :class:`millwheel.ports.Snapshots`."""
        found = [self._read(path) for path in self._manifests(shard)]
        return max(found, key=lambda manifest: (manifest.token, manifest.last_commit, manifest.number), default=None)

    def publish(self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Callable[[], None]) -> Manifest:
        """See :class:`millwheel.ports.Snapshots`."""
        folder = self._folder / shard
        try:
            folder.mkdir(exist_ok=True)
            parent = self.latest(shard)
            files = self._upload(folder, Path(checkpoint), f"{token}-{last_commit}", parent)
            while True:
                parent = self.latest(shard)
                if parent is not None and parent.token > token:
                    raise ConflictError(f"shard {shard}: a snapshot under token {parent.token} exists, ours is {token}")
                number = max((_number(path) for path in self._manifests(shard)), default=0) + 1
                manifest = Manifest(shard, number, parent.number if parent else 0, token, last_commit, files)
                guard()
                if create_if_absent(folder / f"manifest-{number:010d}.json", _encode(manifest)):
                    return manifest
        except OSError as ex:
            raise setup_error(ex, f"publishing a snapshot of {shard}", folder) from ex

    def restore(self, manifest: Manifest, path: str) -> None:
        """See :class:`millwheel.ports.Snapshots`."""
        target = Path(path)
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        for name, (blob, size, checksum) in manifest.files.items():
            source = self._folder / manifest.shard / blob
            _place(source, target / name)
            if _size(source) != size or _digest(target / name) != checksum:
                raise CorruptionError(
                    f"snapshot {manifest.number} of {manifest.shard}: {source} is missing or damaged; restore the file "
                    "from a copy, recovery does not fall back to an older snapshot"
                )

    def collect(self, shard: str) -> int:
        """See :class:`millwheel.ports.Snapshots`."""
        paths = self._manifests(shard)
        manifests = sorted((self._read(path) for path in paths), key=lambda m: (m.token, m.last_commit, m.number))
        kept = manifests[-KEPT_MANIFESTS:]
        if not kept:
            return 0
        used = {blob for manifest in kept for blob, _, _ in manifest.files.values()}
        newest = (kept[-1].token, kept[-1].last_commit)
        gone = [self._folder / shard / f"manifest-{m.number:010d}.json" for m in manifests[:-KEPT_MANIFESTS]]
        gone += [
            path
            for path in (self._folder / shard).iterdir()
            if path.name not in used and (made := _made(path.name)) is not None and made <= newest
        ]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _upload(
        self, folder: Path, checkpoint: Path, prefix: str, parent: Manifest | None
    ) -> Mapping[str, tuple[str, int, str]]:
        files: dict[str, tuple[str, int, str]] = {}
        for path in sorted(checkpoint.iterdir()):
            size, checksum = path.stat().st_size, _digest(path)
            before = parent.files.get(path.name) if parent is not None else None
            if before is not None and before[1:] == (size, checksum):
                files[path.name] = before
                continue
            blob = f"{prefix}-{path.name}"
            _place(path, folder / blob)
            _sync(folder / blob)
            files[path.name] = (blob, size, checksum)
        sync_folder(folder)
        return files

    def _manifests(self, shard: str) -> Sequence[Path]:
        folder = self._folder / shard
        return sorted(folder.glob("manifest-*.json")) if folder.is_dir() else []

    @staticmethod
    def _read(path: Path) -> Manifest:
        try:
            body = msgspec.json.decode(path.read_bytes())
            checksum = body.pop("checksum")
            if xxhash.xxh3_128_hexdigest(msgspec.json.encode(body)) != checksum:
                raise ValueError("its checksum does not match")
            return msgspec.convert(body, Manifest)
        except (ValueError, KeyError, AttributeError, msgspec.MsgspecError) as ex:
            raise CorruptionError(f"manifest {path} is damaged ({ex}); restore the file from a copy") from ex


def _encode(manifest: Manifest) -> bytes:
    body: dict[str, Any] = msgspec.to_builtins(manifest)
    body = msgspec.json.decode(msgspec.json.encode(body))
    return msgspec.json.encode({**body, "checksum": xxhash.xxh3_128_hexdigest(msgspec.json.encode(body))})


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _made(name: str) -> tuple[int, int] | None:
    """(token, commit) of a blob's name; None for anything else in the folder."""
    parts = name.split("-", 2)
    return (int(parts[0]), int(parts[1])) if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit() else None


def _place(source: Path, target: Path) -> None:
    """Link what never changes, copy everything else (and across file systems)."""
    if source.suffix == _IMMUTABLE or source.name.endswith(_IMMUTABLE):
        try:
            target.unlink(missing_ok=True)
            os.link(source, target)
            return
        except OSError:
            pass  # another file system, or one without links
    if source.exists():
        shutil.copyfile(source, target)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _digest(path: Path) -> str:
    """xxh3-128 of a file, "" when there is none."""
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
