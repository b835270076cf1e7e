"""The local store of a small shard: in memory, and one file when it is checkpointed.

A database costs milliseconds to open and megabytes to hold, even when it is empty. Most shards of a
pipeline with many nodes hold a few keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from sortedcontainers import SortedDict
from xxhash import xxh3_128_digest

from millwheel.adapters.spaces.durable import read_whole, write_all
from millwheel.adapters.spaces.files import Files, explained
from millwheel.core.formats.store_layout import after
from millwheel.errors import CorruptionError, InvariantError

NAME = "small"
"""The one file of a checkpoint."""
_FORMAT = b"millwheel small state 1\n"  # Fixed: of the format
_SAMPLE = 64  # entries whose size stands for that of all: a metric may not cost more
# of memory for an entry besides its content: two objects, a slot of the dict and of the list
_ENTRY_BYTES = 150
_DIGEST_BYTES = 16  # Fixed: of the format

Entry = tuple[bytes, bytes]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode


class SmallStore:
    """A :class:`millwheel.adapters.ports.StateStore` in memory. Errors contain ``name``."""

    __slots__ = ("_bytes", "_closed", "_counted", "_data", "_files", "_name", "get")

    def __init__(self, files: Files, name: str, entries: Sequence[Entry] = ()) -> None:
        self._files = files
        self._name = name
        self._data: SortedDict[bytes, bytes] = SortedDict(entries)
        self._bytes = self._counted = _size(entries)
        self._closed = False
        self.get: Callable[[bytes], bytes | None] = self._data.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [*map(self.get, keys)]

    def apply(self, puts: Iterable[Entry], deletes: Iterable[bytes]) -> None:
        data = self._opened()
        puts = list(puts)
        data.update(puts)
        for key in deletes:
            data.pop(key, None)
        self._bytes += _size(puts)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        data = self._opened()
        for key in [*data.irange(begin, end, (True, False))] if begin < end else ():
            del data[key]

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[Entry]:
        data = self._opened()
        # A list, not a generator: the caller may write while it scans, as in the store that it may
        # become (test_a_scan_sees_the_store_as_of_the_call).
        return iter([(key, data[key]) for key in self._keys(prefix, max(prefix, since))])

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        return next(self._keys(prefix, max(prefix, since)), None)

    def _keys(self, prefix: bytes, since: bytes) -> Iterator[bytes]:
        end = after(prefix)
        if end and since >= end:
            return iter(())
        keys: Iterator[bytes] = self._opened().irange(since, end or None, (True, False))
        return keys

    def grown_beyond(self, limit: int) -> bool:
        """Whether it holds more than ``limit`` bytes. Counted only when there may be twice as many
        as that, and as were counted last, so that most calls cost nothing."""
        if self._bytes > 2 * max(limit, self._counted):
            self._bytes = self._counted = _size(self._data.items())
        return self._counted > limit

    def memory_bytes(self) -> int:
        """Its size in memory, as of the last count."""
        return self._counted + len(self._data) * _ENTRY_BYTES

    def checkpoint(self, path: str) -> None:
        body = _encode(list(self._opened().items()))
        try:
            self._files.make_dir(path)
            fd = self._files.create(f"{path}/{NAME}")
            try:
                # Without a sync: nothing local is promised to survive.
                write_all(self._files, fd, _FORMAT + xxh3_128_digest(body) + body, 0)
            finally:
                self._files.close(fd)
        except OSError as ex:
            raise explained(ex, f"write a checkpoint of {self._name} to {path}") from ex

    def size_bytes(self) -> int:
        """Estimated from the average size of the first entries."""
        some = [*islice(self._data.items(), _SAMPLE)]
        return _size(some) * len(self._data) // max(1, len(some))

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._data = SortedDict()
        self.get = self._refuse

    def _opened(self) -> SortedDict[bytes, bytes]:
        if self._closed:
            self._refuse()
        return self._data

    def _refuse(self, key: bytes = b"") -> bytes | None:
        raise InvariantError(f"the store {self._name} was used after it was closed")


def opened(files: Files, path: str, name: str) -> SmallStore | None:
    """The store that a checkpoint holds; None when the checkpoint is not of a small store. Raises
    CorruptionError for damage."""
    try:
        data = read_whole(files, f"{path}/{NAME}")
    except FileNotFoundError:
        return None
    except OSError as ex:
        raise explained(ex, f"read the checkpoint {path}") from ex
    digest, body = data[len(_FORMAT) :][:_DIGEST_BYTES], data[len(_FORMAT) + _DIGEST_BYTES :]
    if not data.startswith(_FORMAT) or xxh3_128_digest(body) != digest:
        raise CorruptionError(
            f"{path}/{NAME} is damaged, or of another version: {len(data)} bytes, the first"
            f" {data[:24]!r}, fail their checksum; a restart restores it from the snapshot again"
        )
    return SmallStore(files, name, _decode(body))


def _size(entries: Iterable[Entry]) -> int:
    return sum(len(key) + len(value) for key, value in entries)
