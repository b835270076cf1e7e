"""Restores a checkpoint on this machine from a manifest, reading as little as possible.

A file that can be shared with the root, under another name, is not read at all: the time does not
depend on the size of the state. RocksDB checks each block when it reads it, and
:meth:`Restoring.unverified` reads everything in its own time. Other files are copied, several at
once, and checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from xxhash import xxh3_128

from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.blobs import IMMUTABLE, BlobCache, Digests
from millwheel.adapters.spaces.durable import chunks, sync_file
from millwheel.adapters.spaces.files import Files
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.errors import CorruptionError

Blob = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class RestorePace:
    """``copies`` files are copied at once; ``cache`` has the files that were copied before."""

    copies: int = 1
    cache: BlobCache | None = None


class Restoring:
    """The files of snapshots, brought here."""

    def __init__(
        self, space: ObjectSpace, files: Files, digests: Digests, pace: RestorePace
    ) -> None:
        self._space, self._files, self._digests, self._pace = space, files, digests, pace
        self._unread: deque[tuple[str, Blob]] = deque()
        self._verified: set[str] = set()

    def bring(self, manifest: Manifest, folder: str, path: str) -> None:
        """Fill the empty directory ``path``. Raises CorruptionError, or FileNotFoundError for a
        blob that is gone."""
        missing: list[tuple[str, Blob]] = []
        for name, blob in manifest.files.items():
            if not self._shared(f"{folder}/{blob[0]}", f"{path}/{name}", blob):
                missing.append((f"{path}/{name}", blob))
        self._copy_all(folder, missing)

    def _shared(self, key: str, target: str, blob: Blob) -> bool:
        """Take a file from the cache or the root without a copy, if RocksDB never writes to it;
        whether that was done."""
        _, size, digest = blob
        if not target.endswith(IMMUTABLE):
            return False
        if self._pace.cache is not None and self._pace.cache.take(digest, size, target):
            self._digests.remember(self._files.identity(target), digest)
            return True
        if not self._space.share_file(key, target):
            return False
        identity = self._files.identity(target)
        if identity.size != size:
            raise CorruptionError(f"{key} has {identity.size} bytes, not {size}")
        self._digests.remember(identity, digest)
        self._unread.append((key, blob))
        return True

    def _copy_all(self, folder: str, missing: Sequence[tuple[str, Blob]]) -> None:
        if self._pace.copies == 1:
            for target, blob in missing:
                self._copy(folder, target, blob)
            return
        with ThreadPoolExecutor(self._pace.copies, "restore") as pool:
            list(pool.map(lambda pair: self._copy(folder, *pair), missing))

    def _copy(self, folder: str, target: str, blob: Blob) -> None:
        name, size, digest = blob
        self._space.fetch_file(f"{folder}/{name}", target)
        identity, actual = self._files.identity(target), self._digests.read(target)
        if (identity.size, actual) != (size, digest):
            raise _damaged(f"{folder}/{name}", blob, identity.size, actual)
        if target.endswith(IMMUTABLE):
            self._digests.remember(identity, digest)
            if self._pace.cache is not None:
                # Nothing else that is local must survive; in the cache, the name stands for the
                # content.
                sync_file(self._files, target)
            self.keep(target, blob)

    def keep(self, path: str, blob: Blob) -> None:
        """Keep a copy of a checked file at hand, in case it is needed again."""
        if self._pace.cache is not None:
            self._pace.cache.add(blob[2], blob[1], path)

    def unverified(self) -> Iterator[None]:
        """Read and check the shared files, a piece at a time. Raises CorruptionError with the
        file's name."""
        while self._unread:
            key, blob = self._unread.popleft()
            if blob[2] not in self._verified:
                yield from self._verify(key, blob)
                self._verified.add(blob[2])

    def _verify(self, key: str, blob: Blob) -> Iterator[None]:
        digest, size = xxh3_128(), 0
        try:
            for part in chunks(self._files, key):  # shared files are on our file system
                digest.update(part)
                size += len(part)
                yield
        except FileNotFoundError:
            return  # collected since
        if digest.hexdigest() != blob[2]:
            raise CorruptionError(
                f"{_damaged(key, blob, size, digest.hexdigest())}. It is part of a snapshot that is"
                " in use: bring the file back from a copy; an older snapshot would lose what was"
                " committed since, so none is taken"
            )


def _damaged(key: str, blob: Blob, size: int, digest: str) -> CorruptionError:
    return CorruptionError(
        f"{key} has {size} bytes with checksum {digest}, not {blob[1]} with {blob[2]}"
    )
