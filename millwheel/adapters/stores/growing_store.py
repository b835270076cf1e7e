"""Local stores that begin small, in memory, and move into a database of their own when they have
grown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from millwheel.adapters.ports import StateStore, StateStores
from millwheel.adapters.spaces.durable import remove_tree
from millwheel.adapters.spaces.files import Files
from millwheel.adapters.stores.small import Entry, SmallStore, opened
from millwheel.errors import invariant

SMALL_BYTES = 256 << 10
"""A larger store moves into a database when no memory is left for it. In memory its content takes
about four times this size."""
SHARED_BYTES = 64 << 20
"""The memory of a worker for stores that are larger than that. Opening a database takes 10 ms of
CPU and ten syncs while all shards wait: windows of a short run are over before it pays."""
_MOST_BYTES = 16 << 20  # of it for one store: a checkpoint writes it whole


class SharedMemory:
    """Memory that several stores share (any thread: shards are restored beside the loop)."""

    def __init__(self, most_bytes: int) -> None:
        self._most = self._left = most_bytes
        self._lock = threading.Lock()

    def hold(self, held: int, requested: int) -> bool:
        """Hold ``requested`` bytes in place of the ``held`` ones. False if there are not so many,
        and nothing changes."""
        with self._lock:
            if requested - held > self._left:
                return False
            self._left -= requested - held
            # Memory given back twice would be held by two: the worker would exceed its share.
            invariant(0 <= self._left <= self._most, f"{self._left} of {self._most} bytes are left")
            return True


class GrowingStore:
    """A :class:`millwheel.adapters.ports.StateStore` that changes its form once: ``grow`` opens an
    empty big one, when there are more than ``limit`` bytes and ``shared`` has no memory for
    them."""

    __slots__ = ("_grow", "_held", "_limit", "_shared", "_store", "get", "get_many")

    def __init__(
        self,
        store: StateStore,
        limit: int,
        grow: Callable[[], StateStore],
        shared: SharedMemory | None = None,
    ) -> None:
        self._limit = limit
        self._grow = grow
        self._shared = shared or SharedMemory(0)
        self._held = 0
        self._become(store)

    def _become(self, store: StateStore) -> None:
        self._store = store
        # The two calls of every record go straight to the store: it changes once in a life.
        self.get: Callable[[bytes], bytes | None] = store.get
        self.get_many: Callable[[Sequence[bytes]], list[bytes | None]] = store.get_many

    def apply(self, puts: Iterable[Entry], deletes: Iterable[bytes]) -> None:
        store = self._store
        store.apply(puts, deletes)
        if type(store) is SmallStore and not self._has_memory(store):
            self._become_big(store)

    def _has_memory(self, store: SmallStore) -> bool:
        needed = store.memory_bytes() if store.grown_beyond(self._limit) else 0
        if needed == self._held:
            return True
        if needed > _MOST_BYTES or not self._shared.hold(self._held, needed):
            return False
        self._held = needed
        return True

    def _release_memory(self) -> None:
        self._shared.hold(self._held, 0)
        self._held = 0

    def _become_big(self, store: SmallStore) -> None:
        big = self._grow()
        try:
            big.apply(store.scan(b""), ())
        except BaseException:
            big.close()
            raise
        # Only now: the small store is the shard's only copy until the big one has every entry
        # (test_a_database_that_cannot_be_opened_leaves_the_small_store_whole).
        store.close()
        self._release_memory()
        self._become(big)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self._store.delete_range(begin, end)

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[Entry]:
        return self._store.scan(prefix, since)

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        return self._store.first(prefix, since)

    def checkpoint(self, path: str) -> None:
        self._store.checkpoint(path)

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def close(self) -> None:
        """Idempotent."""
        self._store.close()
        self._release_memory()
        self.get, self.get_many = self._store.get, self._store.get_many


class GrowingStores:
    """A :class:`millwheel.adapters.ports.StateStores`: ``big`` opens stores that have more than
    ``small_bytes`` and no room in ``shared_bytes`` of memory."""

    def __init__(
        self,
        big: StateStores,
        files: Files,
        small_bytes: int = SMALL_BYTES,
        shared_bytes: int = SHARED_BYTES,
    ) -> None:
        self._big = big
        self._files = files
        self._small_bytes = small_bytes
        self._shared = SharedMemory(shared_bytes)

    def open(self, shard: str, checkpoint: str | None) -> StateStore:
        """A checkpoint of either form: old roots, from before small stores, have big ones only."""
        if checkpoint is None:
            return self._growing(shard, SmallStore(self._files, shard))
        small = opened(self._files, checkpoint, shard)
        if small is None:
            return self._big.open(shard, checkpoint)
        remove_tree(self._files, checkpoint)
        return self._growing(shard, small)

    def _growing(self, shard: str, store: SmallStore) -> StateStore:
        return GrowingStore(
            store, self._small_bytes, lambda: self._big.open(shard, None), self._shared
        )
