"""A root in an object store, by conditional writes: a name can be created only once, and an object
is replaced only if it is unchanged since it was read.

The client repeats safe requests, for a bounded time. Outcomes that it cannot determine are settled
here: a create without an answer is read back, because nobody else writes the same bytes.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from millwheel.adapters.spaces.object_client import CallLimits
from millwheel.adapters.spaces.object_space import ObjectContent
from millwheel.adapters.spaces.object_store import (
    PART_BYTES,
    ObjectChangedError,
    ObjectStore,
    ObjectVersion,
)
from millwheel.adapters.spaces.root_address import RootAddress
from millwheel.errors import UnavailableError

_CLAIM = ".claimed"
_TRIES = 3  # attempts at a conditional write whose outcome is unknown
_REQUEST_S = 30.0  # a commit waits for a request, and no object of a root is large


class BucketSpace:
    """:class:`millwheel.adapters.spaces.object_space.ReplacingSpace` below a prefix of a bucket.

    Credentials, and options that the address omits, come from the environment of the process, or
    from the machine's role.
    """

    def __init__(self, address: RootAddress, limits: CallLimits | None = None) -> None:
        self.root = address.root
        self._scheme = address.scheme
        where = address.bucket_address()
        self._skip = len(f"{where.top}/")
        self._store = ObjectStore(
            where, address.config(), limits or CallLimits(request_s=_REQUEST_S)
        )

    def kind(self) -> str:
        return self._scheme

    def prepare(self, folder: str) -> None:
        """Folders are no more than parts of names."""

    def claim(self, folder: str) -> bool:
        # Random: a claim whose answer is lost is read back, and only ours has these bytes.
        return self.create(f"{folder}/{_CLAIM}", os.urandom(16))

    def claimed(self, folder: str) -> bool:
        return self.exists(f"{folder}/{_CLAIM}")

    def names(self, folder: str) -> list[str]:
        return [name for name in self._store.names(self._path(folder)) if name != _CLAIM]

    def settle(self, folder: str) -> None:
        """Listed objects are durable."""

    def create(self, key: str, data: bytes, staged: str = "") -> bool:
        path = self._path(key)
        for _ in range(_TRIES):
            try:
                created = self._store.write(path, data, None)
            except UnavailableError as ex:
                error = ex
                with suppress(UnavailableError):
                    if (stored := self._store.get(path)) is not None:
                        return stored == data
                # Nothing is there yet. A request that still arrives meets the same condition, so
                # another one is safe.
            else:
                # Refused, perhaps because of our own: the client repeats a request without answer.
                return created is not None or self._store.get(path) == data
        raise UnavailableError(f"{error}. It is not known whether the object exists") from error

    def replace(self, key: str, data: bytes, version: ObjectVersion) -> ObjectVersion | None:
        try:
            written = self._store.write(self._path(key), data, version)
        except UnavailableError:  # it may be there
            current = self.version(key)
            if current is None or current.data != data:
                raise
            return current.version
        if written is not None:
            return written
        current = self.version(key)  # the answer to an earlier attempt of the client may be lost
        return current.version if current is not None and current.data == data else None

    def version(self, key: str) -> ObjectContent | None:
        loaded = self._store.load(self._path(key))
        return None if loaded is None else ObjectContent(*loaded)

    def get(self, key: str) -> bytes:
        data = self._store.get(self._path(key))
        if data is None:
            raise _missing(key)
        return data

    def exists(self, key: str) -> bool:
        return self._store.head(self._path(key)) is not None

    def delete(self, key: str) -> None:
        self._store.delete(self._path(key))

    def put_file(self, source: str, key: str, *, immutable: bool) -> str:
        self._store.upload(self._path(key), source)
        return source

    def share_file(self, key: str, target: str) -> bool:
        return False

    def fetch_file(self, key: str, target: str) -> None:
        """Fetch in pieces, each a request: a time limit for the whole would limit the size."""
        path = self._path(key)
        head = self._store.head(path)
        if head is None:
            raise _missing(key)
        with open(target, "xb") as file:
            # By the tag: pieces of two versions would make a file that never existed.
            for start in range(0, head.size, PART_BYTES):
                try:
                    file.write(
                        self._store.read(
                            path, start, min(start + PART_BYTES, head.size), head.version.tag
                        )
                    )
                except ObjectChangedError as ex:
                    raise _missing(key) from ex

    def _path(self, key: str) -> str:
        return key[self._skip :]


def _missing(key: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "it is missing", key)
