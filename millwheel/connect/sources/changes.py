"""Readers with two records at one position: the former and the new state of a row."""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.connect.sources.base import Chunk, Reader, Reject
from millwheel.errors import invariant

EACH = 2
"""Positions per message: one for a retraction and one for a value."""


class ChangesReader(Reader):
    """``inner`` reads lists of one or two records, at the positions p = 1, 2, …; their records get
    the positions 2p - 1 and 2p, a single one 2p. So reading goes on at whole messages only."""

    def __init__(self, inner: Reader) -> None:
        self._inner = inner

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        self._inner.resume([(position // EACH, note) for position, note in notes])

    def stop_at(self, end: tuple[int, ...]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        self._inner.stop_at(end)

    def reached(self, position: int) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        return self._inner.reached(position // EACH)

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        invariant(position % EACH == 0, f"position {position} lies within the changes of a message")
        return _of_changes(self._inner.read(position // EACH, max(max_records // EACH, 1)))

    def skip(self, position: int) -> Chunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        chunk = self._inner.skip(position // EACH)
        return None if chunk is None else _of_changes(chunk)

    def close(self) -> None:
        self._inner.close()


def _of_changes(chunk: Chunk) -> Chunk:
    result = Chunk(
        [], [], chunk.next_position * EACH, finished=chunk.finished, caught_up=chunk.caught_up
    )
    result.note, result.watermark = chunk.note, chunk.watermark
    result.begins = None if chunk.begins is None else (chunk.begins[0] * EACH, chunk.begins[1])
    for at, changes in zip(chunk.positions, chunk.values, strict=True):
        result.positions += range(at * EACH - len(changes) + 1, at * EACH + 1)
        result.values += changes
    result.rejects = [Reject(each.position * EACH, each.raw, each.reason) for each in chunk.rejects]
    return result
