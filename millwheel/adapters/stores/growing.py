"""Local stores that begin small, in memory, and move into a database of their own when they have grown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from millwheel.adapters.spaces.durable import remove_tree
from millwheel.adapters.spaces.files import Files
from millwheel.adapters.stores.small import Entry, SmallStore, opened
from millwheel.ports import StateStore, StateStores

SMALL_BYTES = 256 << 10
"""A larger store moves into a database. In memory its content takes about four times this size."""


class GrowingStore:
    """A :class:`millwheel.ports.StateStore` that changes its form once: ``grow`` opens an empty big one."""

    __slots__ = ("_grow", "_limit", "_store", "get", "get_many")

    def __init__(self, store: StateStore, limit: int, grow: Callable[[], StateStore]) -> None:
        self._limit = limit
        self._grow = grow
        self._become(store)

    def _become(self, store: StateStore) -> None:
        self._store = store
        # The two calls of every record go straight to the store: it changes once in a life.
        self.get: Callable[[bytes], bytes | None] = store.get
        self.get_many: Callable[[Sequence[bytes]], list[bytes | None]] = store.get_many

    def apply(self, puts: Iterable[Entry], deletes: Iterable[bytes]) -> None:
        store = self._store
        store.apply(puts, deletes)
        if type(store) is SmallStore and store.grown_beyond(self._limit):
            self._become_big(store)

    def _become_big(self, store: SmallStore) -> None:
        big = self._grow()
        try:
            big.apply(store.scan(b""), ())
        except BaseException:
            big.close()
            raise
        # Only now: the small store is all there is of the shard until the big one has every entry
        # (test_a_database_that_cannot_be_opened_leaves_the_small_store_whole).
        store.close()
        self._become(big)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self._store.delete_range(begin, end)

    def scan(self, prefix: bytes) -> Iterator[Entry]:
        return self._store.scan(prefix)

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        return self._store.first(prefix, since)

    def checkpoint(self, path: str) -> None:
        self._store.checkpoint(path)

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def close(self) -> None:
        """Idempotent."""
        self._store.close()
        self.get, self.get_many = self._store.get, self._store.get_many


class GrowingStores:
    """A :class:`millwheel.ports.StateStores`: ``big`` opens those that have more than ``small_bytes``."""

    def __init__(self, big: StateStores, files: Files, small_bytes: int = SMALL_BYTES) -> None:
        self._big = big
        self._files = files
        self._small_bytes = small_bytes

    def open(self, shard: str, checkpoint: str | None) -> StateStore:
        """A checkpoint of either form: roots from before there were small stores have big ones only."""
        if checkpoint is None:
            return self._growing(shard, SmallStore(self._files, shard))
        small = opened(self._files, checkpoint, shard)
        if small is None:
            return self._big.open(shard, checkpoint)
        remove_tree(self._files, checkpoint)
        return self._growing(shard, small)

    def _growing(self, shard: str, store: SmallStore) -> StateStore:
        return GrowingStore(store, self._small_bytes, lambda: self._big.open(shard, None))
