"""The writes of a bundle before it is committed: a layer over the shard's store.

Reads see the layer first. A savepoint lets one record's writes be taken back when its callback
fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from millwheel.adapters.ports import StoreView
from millwheel.errors import InvariantError

_HEAD = 9
"""A family and the hash of a key: all entries of one key in a family have this beginning."""


class Overlay:
    """The pending puts (bytes) and deletes (None) by key.

    From the first scan of a bundle on, changes are also indexed by the beginning of their keys: a
    bundle may scan as often as it changes something."""

    def __init__(self, store: StoreView) -> None:
        self._store = store
        self._changes: dict[bytes, bytes | None] = {}
        self._undo: list[tuple[bytes, bool, bytes | None]] | None = None
        self._heads: dict[bytes, dict[bytes, None]] | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value as this bundle sees it."""
        if key in self._changes:
            return self._changes[key]
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Many values with one call to the store."""
        values = self._store.get_many(keys)
        if self._changes:
            changes = self._changes
            return [changes.get(key, value) for key, value in zip(keys, values, strict=True)]
        return values

    def put(self, key: bytes, value: bytes) -> None:
        """Write with the next commit."""
        self._remember(key)
        self._changes[key] = value
        if self._heads is not None:
            self._heads.setdefault(key[:_HEAD], {})[key] = None

    def delete(self, key: bytes) -> None:
        """Delete with the next commit."""
        self._remember(key)
        self._changes[key] = None
        if self._heads is not None:
            self._heads.setdefault(key[:_HEAD], {})[key] = None

    def update(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put values, and delete where there is none, with the next commit."""
        if self._undo is not None:
            for key in changes:
                self._remember(key)
        self._changes.update(changes)
        if self._heads is not None:
            for key in changes:
                self._heads.setdefault(key[:_HEAD], {})[key] = None

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries below a prefix that are not below ``since``, in byte order, as this bundle
        sees them. The scan has the entries that were there when the first one was asked for."""
        own = self._like(prefix)
        changed = sorted([key for key in own if key.startswith(prefix) and key >= since])
        if not changed:
            yield from self._store.scan(prefix, since)
            return
        changes, ahead = {key: self._changes[key] for key in changed}, deque(changed)
        head = ahead[0]
        for entry in self._store.scan(prefix, since):
            while ahead and head < entry[0]:
                if (value := changes[head]) is not None:
                    yield head, value
                ahead.popleft()
                head = ahead[0] if ahead else b""
            if head != entry[0]:
                yield entry
        for key in ahead:
            if (value := changes[key]) is not None:
                yield key, value

    def _like(self, prefix: bytes) -> list[bytes]:
        """The changes, at least those under this prefix."""
        if len(prefix) < _HEAD:
            return list(self._changes)
        if self._heads is None:
            self._heads = {}
            for key in self._changes:
                self._heads.setdefault(key[:_HEAD], {})[key] = None
        return [key for key in self._heads.get(prefix[:_HEAD], ()) if key in self._changes]

    def savepoint(self) -> int:
        """Start recording so that :meth:`undo_to` can return to this moment."""
        if self._undo is None:
            self._undo = []
        return len(self._undo)

    def undo_to(self, savepoint: int) -> None:
        """Take back every write since the savepoint."""
        # A commit, or a bundle that ran at once, has ended the recording: then what a failed call
        # has written would stay.
        if self._undo is None or savepoint > len(self._undo):
            raise InvariantError("the writes since this savepoint are not known any more")
        while len(self._undo) > savepoint:
            key, present, before = self._undo.pop()
            if present:
                self._changes[key] = before
            else:
                del self._changes[key]

    def forget_savepoints(self) -> None:
        """End the recording: nothing will be taken back any more."""
        self._undo = None

    def take(self) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """The puts and deletes so far; the layer is empty afterwards."""
        changes, self._changes, self._undo, self._heads = self._changes, {}, None, None
        puts = [(key, value) for key, value in changes.items() if value is not None]
        return puts, [key for key, value in changes.items() if value is None]

    def __bool__(self) -> bool:
        return bool(self._changes)

    def _remember(self, key: bytes) -> None:
        if self._undo is not None:
            self._undo.append((key, key in self._changes, self._changes.get(key)))
