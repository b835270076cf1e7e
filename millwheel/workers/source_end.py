"""When a source shard reads nothing: for a while, because the pipeline is to come to rest, or for ever."""

from __future__ import annotations

from millwheel.core.layout import ENDED
from millwheel.ports import StateStore
from millwheel.workers.turn import Turn


class SourceEnd:
    """Rest and end of one source shard. ``ended`` is part of its state: no later owner reads on. ``catching_up``: what
    an earlier owner may have read is to be read again first."""

    def __init__(self, store: StateStore) -> None:
        self.ended = store.get(ENDED) is not None
        self.finishing = False
        self.catching_up = False
        self._resting_since: int | None = None

    @property
    def reads_nothing(self) -> bool:
        """True while it rests, and from the moment on at which it was told to finish."""
        return self._resting_since is not None or self.finishing or self.ended

    def due(self, applied: bool) -> bool:
        """True when the end may be committed: all that was read is ``applied``."""
        return self.finishing and not self.ended and applied

    def commit(self, turn: Turn) -> None:
        """The end goes into this turn's commit. What the shard held before the turn it holds until that is durable."""
        turn.overlay.put(ENDED, b"")
        self.ended = True

    def rest(self, wanted: bool, now: int) -> int:
        """Begin or end a rest; how long (µs) the one that ends has been."""
        since = self._resting_since
        if wanted:
            self._resting_since = now if since is None else since
            return 0
        self._resting_since = None
        return 0 if since is None else max(0, now - since)

    def time(self, now: int) -> int:
        """The wall clock by which silence is measured: it stands still during a rest."""
        return now if self._resting_since is None else min(now, self._resting_since)
