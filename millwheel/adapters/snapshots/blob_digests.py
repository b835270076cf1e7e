"""Checksums of files, each read once: an immutable file is known again by its identity, under
whatever name."""

from __future__ import annotations

from xxhash import xxh3_128

from millwheel.adapters.spaces.durable import chunks
from millwheel.adapters.spaces.files import FileIdentity, Files

IMMUTABLE = ".sst"
"""How the names of files end that RocksDB never writes to again."""
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
        """Record the known checksum of an immutable file."""
        self._digests[identity] = digest
        if len(self._digests) > _REMEMBERED:
            self._digests.pop(next(iter(self._digests)), None)

    def read(self, path: str) -> str:
        """The checksum of a file's current content."""
        digest = xxh3_128()
        for part in chunks(self._files, path):
            digest.update(part)
        return digest.hexdigest()
