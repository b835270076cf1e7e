"""The times at which a source shard does not read: while the pipeline comes to rest, or for ever after its end."""

from __future__ import annotations

from millwheel.core.formats.store_layout import ENDED
from millwheel.ports import StateStore
from millwheel.workers.bundle.bundle import Bundle


class SourceEnd:
    """Rest and end of one source shard. It reads nothing while it is ``resting``. ``ended`` is part of its state: no
    later owner reads on. ``catching_up``: what an earlier owner may have read is to be read again first."""

    def __init__(self, store: StateStore) -> None:
        self.ended = store.get(ENDED) is not None
        self.finishing = False
        self.catching_up = False
        self.resting = False

    @property
    def reads_nothing(self) -> bool:
        """True while it rests, and always after the order to finish."""
        return self.resting or self.finishing or self.ended

    def due(self, applied: bool) -> bool:
        """True when the end may be committed: all that was read is ``applied``."""
        return self.finishing and not self.ended and applied

    def commit(self, bundle: Bundle) -> None:
        """The end goes into this bundle's commit. What the shard held before the bundle it holds until that is
        durable."""
        bundle.overlay.put(ENDED, b"")
        self.ended = True
