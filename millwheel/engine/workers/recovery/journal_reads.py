"""The journals of dead workers are read once for all of their shards that are recovered here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain

from millwheel.adapters.ports import Followed, JournalsRead
from millwheel.core.formats.codec import shard_of_commit
from millwheel.core.formats.journal_segment import JournalPosition

_AT_MOST_BYTES = 256 << 20
"""Of journals that are kept for the next shard; more is read again. A worker with a few shards of
much state has up to some 32 MiB of commits for each since its snapshot, and as much again in
segments that others still need."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """All entries of a sealed journal by shard, in order. A holder keeps them even if the cache
    drops them. Without this division each of fifty shards would examine the entries of all."""

    by_shard: dict[bytes, list[bytes]]
    size: int = 0

    def beginning_with(self, prefix: bytes) -> Iterator[bytes]:
        entries = self.by_shard.get(shard_of_commit(prefix), [])
        return (entry for entry in entries if entry.startswith(prefix))


class ReadOnce:
    """The methods of :class:`millwheel.adapters.ports.Journals` that recoveries need. Keeps the
    entries of sealed journals, which do not change any more, unless there are very many: of
    several, because a shard whose owners die one after the other needs all of theirs. ``lock`` lets
    one reader read and the others wait for it."""

    def __init__(self, journals: JournalsRead, lock: AbstractContextManager[object]) -> None:
        self._journals = journals
        self._lock = lock
        self._journals_read: dict[tuple[str, int], _Whole] = {}

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        """See :class:`millwheel.adapters.ports.Journals`."""
        if upto < 0 or since is not None or not prefix:
            return self._journals.read(incarnation, upto, since, prefix)
        with self._lock:
            # A single look: another recovery may end, and forget, between any two lines of this
            # function.
            journal = self._journals_read.get((incarnation, upto))
            if journal is None:
                return self._fresh(incarnation, upto, prefix)
        return journal.beginning_with(prefix)

    def _fresh(self, incarnation: str, upto: int, prefix: bytes) -> Iterator[bytes]:
        by_shard: defaultdict[bytes, list[bytes]] = defaultdict(list)
        cache = self._journals_read
        rest, size, room = self._journals.read(incarnation, upto), 0, _room(cache)
        for entry in rest:
            by_shard[shard_of_commit(entry)].append(entry)
            size += len(entry)
            while size > room and cache:
                del cache[next(iter(cache))]  # that of the longest dead
                room = _room(cache)
            if size > room:
                read = _Whole(by_shard).beginning_with(prefix)
                return chain(read, (entry for entry in rest if entry.startswith(prefix)))
        self._journals_read[incarnation, upto] = whole = _Whole(by_shard, size)
        return whole.beginning_with(prefix)

    def follow(self, incarnation: str, since: JournalPosition | None) -> Followed:
        """See :class:`millwheel.adapters.ports.Journals`."""
        return self._journals.follow(incarnation, since)

    def forget(self) -> None:
        """Drop everything. Any thread, at any moment: current readers keep the entries that they
        have."""
        self._journals_read = {}


def _room(cache: dict[tuple[str, int], _Whole]) -> int:
    return _AT_MOST_BYTES - sum(whole.size for whole in cache.values())
