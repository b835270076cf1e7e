"""Runs: many small things of one bundle as one entry of the store. Small runs become larger ones,
eight at a time, so that there are few and each thing is written a few times."""

from __future__ import annotations

from collections.abc import Callable

from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError, invariant

_TOGETHER = 8  # runs of one size that become one
_LARGE = 4096  # rows of a run that is not written again


class Runs:
    """The runs of one bucket of one shard, whose rows have ``row_bytes`` each. ``key_of`` gives the
    store key of a run by its number."""

    def __init__(self, overlay: Overlay, key_of: Callable[[int], bytes], row_bytes: int) -> None:
        self._overlay = overlay
        self._key_of = key_of
        self._row_bytes = row_bytes
        self._by_size: dict[int, list[bytes]] = {}
        self._next = 0

    def restore(self, store_key: bytes, number: int, size_bytes: int) -> None:
        """Note a run with this number in the store. To be called in the order of numbers."""
        # Out of order, the next one would get a number that is there, and take its place. Of two
        # parents there may be two with one number, each under its shard.
        invariant(number + 1 >= self._next, f"run {number} is restored behind {self._next - 1}")
        self._by_size.setdefault(self._class(size_bytes), []).append(store_key)
        self._next = number + 1

    def write(self, rows: bytes) -> None:
        """Put a run; the last of eight runs of a size takes the others into itself."""
        while len(rows) < _LARGE * self._row_bytes and len(
            same := self._by_size.get(self._class(len(rows)), [])
        ) >= (_TOGETHER - 1):
            stored = self._overlay.get_many(same)
            runs = [run for run in stored if run is not None]
            invariant(len(runs) == len(same), f"of the runs {same} some are not in the store")
            for store_key in same:
                self._overlay.delete(store_key)
            same.clear()
            rows = b"".join([*runs, rows])
        # A part of a row at the end would be read as rows that were never written.
        if len(rows) % self._row_bytes:
            raise InvariantError(f"{len(rows)} bytes are not rows of {self._row_bytes}")
        store_key = self._key_of(self._next)
        self._by_size.setdefault(self._class(len(rows)), []).append(store_key)
        self._overlay.put(store_key, rows)
        self._next += 1

    def delete(self) -> None:
        """Delete all of them with the next commit."""
        for keys in self._by_size.values():
            for store_key in keys:
                self._overlay.delete(store_key)
        self._by_size.clear()

    def _class(self, size_bytes: int) -> int:
        """The class of a run: runs of one class differ in length by less than a factor of eight."""
        return ((size_bytes // self._row_bytes).bit_length() - 1) // 3
