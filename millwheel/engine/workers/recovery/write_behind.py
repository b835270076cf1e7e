"""Small commits wait in memory before they go to the local store together: the journal has them
already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from millwheel.adapters.ports import StateStore

_ENTRIES = 2_000  # that wait for one write to the store
_BYTES = 1 << 20  # that wait for one write to the store
_LARGE = 1_000
"""A commit of more entries goes to the store by itself: to gather it with others costs more than a
write."""


class WriteBehindStore:
    """A :class:`millwheel.adapters.ports.StateStore` in front of another one. Reads see the waiting
    commits; scans and checkpoints write them first. They are lost with the process, as the store
    itself is: recovery starts from snapshot and journal."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._waiting: dict[bytes, bytes | None] = {}
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        if key in self._waiting:
            return self._waiting[key]
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = self._store.get_many(keys)
        if self._waiting:
            waiting = self._waiting
            return [waiting.get(key, value) for key, value in zip(keys, values, strict=True)]
        return values

    def apply(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        puts = puts if type(puts) is list else list(puts)
        if len(puts) > _LARGE:
            # First, the waiting commits are older: written afterwards, they would replace this one.
            self._write()
            self._store.apply(puts, deletes)
            return
        waiting = self._waiting
        waiting.update(puts)
        self._bytes += sum([len(key) + len(value) for key, value in puts])
        for key in deletes:
            waiting[key] = None
        if len(waiting) > _ENTRIES or self._bytes > _BYTES:
            self._write()

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self._write()  # some of it may lie in the range, and would come back
        self._store.delete_range(begin, end)

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        self._write()
        return self._store.scan(prefix, since)

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        self._write()
        return self._store.first(prefix, since)

    def checkpoint(self, path: str) -> None:
        self._write()
        self._store.checkpoint(path)

    def size_bytes(self) -> int:
        return self._store.size_bytes() + self._bytes

    def written(self) -> StateStore:
        """The store behind this one, once it has everything."""
        self._write()
        return self._store

    def close(self) -> None:
        self._store.close()

    def _write(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._bytes = self._waiting, {}, 0
            puts = [(key, value) for key, value in waiting.items() if value is not None]
            self._store.apply(puts, [key for key, value in waiting.items() if value is None])
