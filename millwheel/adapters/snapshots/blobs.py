"""Immutable files of snapshots on this machine: their checksums, each read once, and a cache by
content, so that none is downloaded again.

The cache's folder is shared by the workers of a machine and outlives each of them. Its entries are
hard links, so they take no room while the files are in use. Losing any of it costs time
only.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from xxhash import xxh3_128

from millwheel.adapters.spaces.durable import chunks
from millwheel.adapters.spaces.files import FileIdentity, Files

IMMUTABLE = ".sst"
"""The suffix of files that RocksDB never writes to again."""
_REMEMBERED = 10_000  # files whose digests are remembered, so that they are read once


class Digests:
    """xxh3-128 in hex. For any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._digests: dict[FileIdentity, str] = {}

    def of(self, path: str, identity: FileIdentity) -> str:
        """The checksum of a file with this identity."""
        if not path.endswith(IMMUTABLE):
            return self.read(path)
        digest = self._digests.get(identity)
        if digest is None:
            digest = self.read(path)
            self.remember(identity, digest)
        return digest

    def remember(self, identity: FileIdentity, digest: str) -> None:
        """Record the checksum of an immutable file, which the caller has."""
        self._digests[identity] = digest
        if len(self._digests) > _REMEMBERED:
            self._digests.pop(next(iter(self._digests)), None)

    def read(self, path: str) -> str:
        """The checksum of a file's current content."""
        digest = xxh3_128()
        for part in chunks(self._files, path):
            digest.update(part)
        return digest.hexdigest()


LIMIT_BYTES = 4 << 30  # of local copies of blobs; the oldest go first


class BlobCache:
    """Immutable files below ``folder``, at most about ``limit_bytes`` of them; those unused for
    longest go first. For any thread and process of one user."""

    def __init__(self, folder: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = Path(folder)
        self._limit_bytes = limit_bytes

    def take(self, digest: str, size: int, target: str) -> bool:
        """Make ``target`` the file with this content; False when it is not here."""
        entry = self._entry(digest, size)
        try:
            if entry.stat().st_size != size:
                return False
            os.link(entry, target)
        except OSError:
            return False
        return True

    def add(self, digest: str, size: int, path: str) -> None:
        """Keep a file whose content was checked. It stays where it is."""
        with suppress(OSError):  # another file system, or another worker was first
            self._folder.mkdir(mode=0o700, exist_ok=True)
            os.link(path, self._entry(digest, size))
            self._trim()

    def _entry(self, digest: str, size: int) -> Path:
        return self._folder / f"{digest}-{size}.sst"

    def _trim(self) -> None:
        """Linking a file, in either direction, updates its change time."""
        entries = [(entry.stat(), entry.path) for entry in os.scandir(self._folder)]
        room = self._limit_bytes - sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda pair: pair[0].st_ctime_ns):
            if room >= 0:
                return
            os.unlink(path)
            room += status.st_size


def cache_beside(scratch: str) -> BlobCache | None:
    """The cache that the workers of this machine share, beside their scratch folders; None where
    others could put files there."""
    folder = Path(scratch).parent
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return BlobCache(str(folder / "blobs"))
