"""Local stores on a disk in memory, made of files as RocksDB's are: data written since the last
checkpoint becomes a new file that never changes, and ``CURRENT`` names the valid files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from xxhash import xxh3_128_digest

from millwheel.adapters.spaces.durable import make_dirs, read_whole, remove_tree, write_all
from millwheel.adapters.spaces.files import Files
from millwheel.errors import CorruptionError, InvariantError

_DIGEST_BYTES = 16  # Fixed: of the format
_encode = msgspec.msgpack.Encoder().encode
_Changes = list[tuple[bytes, bytes | None]]
_decode = msgspec.msgpack.Decoder(_Changes).decode


class MemoryStore:
    """A :class:`millwheel.adapters.ports.StateStore` whose content is a dict, and on disk only
    after a checkpoint."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._tables: list[str] = []
        self._data: dict[bytes, bytes] = {}
        self._changes: dict[bytes, bytes | None] = {}
        self._closed = False

    def load(self) -> None:
        """Load the files that ``CURRENT`` names. Raises CorruptionError when one is missing."""
        try:
            self._tables = read_whole(self._files, f"{self._path}/CURRENT").decode().split()
            for table in self._tables:
                self._merge(_read_table(self._files, f"{self._path}/{table}"))
        except FileNotFoundError as ex:
            raise CorruptionError(f"{self._path} is not a store: {ex}") from ex

    def _merge(self, changes: _Changes) -> None:
        for key, value in changes:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value

    def _open(self) -> dict[bytes, bytes]:
        if self._closed:
            raise InvariantError(f"the store {self._path} was used after it was closed")
        return self._data

    def get(self, key: bytes) -> bytes | None:
        return self._open().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [*map(self._open().get, keys)]

    def apply(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        changes: _Changes = [*puts, *((key, None) for key in deletes)]
        self._open()
        self._merge(changes)
        self._changes.update(changes)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.apply((), [key for key in self._open() if begin <= key < end])

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        entries = self._open().items()
        return iter(
            sorted((key, of) for key, of in entries if key.startswith(prefix) and key >= since)
        )

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        return min(
            (key for key in self._open() if key.startswith(prefix) and key >= since), default=None
        )

    def checkpoint(self, path: str) -> None:
        self._open()
        self._flush()
        self._files.make_dir(path)
        for table in self._tables:
            self._files.link(f"{self._path}/{table}", f"{path}/{table}")
        self._write(f"{path}/CURRENT", "\n".join(self._tables).encode())

    def _write(self, path: str, data: bytes) -> None:
        """Write without a sync: local data need not survive."""
        fd = self._files.create(path)
        write_all(self._files, fd, data, 0)
        self._files.close(fd)

    def _flush(self) -> None:
        if self._changes:
            table = f"{len(self._tables) + 1:06d}.sst"
            body = _encode(sorted(self._changes.items()))
            self._write(f"{self._path}/{table}", xxh3_128_digest(body) + body)
            self._tables.append(table)
            self._changes.clear()

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._open().items())

    def close(self) -> None:
        self._closed = True


def _read_table(files: Files, path: str) -> _Changes:
    """Read a table and check it, as RocksDB does: restoring a snapshot does not read its tables."""
    data = read_whole(files, path)
    if xxh3_128_digest(data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
        raise CorruptionError(f"{path} fails its checksum")
    return _decode(data[_DIGEST_BYTES:])


class MemoryStores:
    """A :class:`millwheel.adapters.ports.StateStores` below ``folder`` of ``files``."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        make_dirs(files, folder)

    def open(self, shard: str, checkpoint: str | None) -> MemoryStore:
        path = f"{self._folder}/{shard}"
        remove_tree(self._files, path)
        self._files.make_dir(path)
        store = MemoryStore(self._files, path)
        if checkpoint is not None:
            for name in self._files.list_dir(checkpoint):
                self._files.link(f"{checkpoint}/{name}", f"{path}/{name}")
            remove_tree(self._files, checkpoint)
            store.load()
        return store
