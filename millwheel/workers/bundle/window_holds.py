"""What the windows of a shard hold the output watermark at, in memory and in its store."""

from __future__ import annotations

from collections.abc import Iterable

from millwheel.core.formats.store_layout import HOLD, key_prefix, number8, number_from8, parse_timer
from millwheel.core.model.keys import KeyHash, key_from_bytes
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import held_at
from millwheel.core.windowing.contract import HoldEffect
from millwheel.workers.bundle.bundle import Hold
from millwheel.workers.state.overlay import Overlay


class WindowHolds:
    """The holds of all windows that have panes to emit. ``hashed`` is the hash of the keys of the node."""

    def __init__(self, overlay: Overlay, hashed: KeyHash) -> None:
        self._overlay = overlay
        self._hashed = hashed
        self._queue = TimerQueue(Domain.EVENT)
        for store_key, data in overlay.scan(HOLD):
            key, _, tag = parse_timer(store_key)
            self._queue.set(key_from_bytes(key), tag, number_from8(data))
        self._queue.take_changes()  # entries that were read are no changes, and are not written again

    def take(self, effects: Iterable[HoldEffect]) -> None:
        """Do what windows ask for."""
        for hold in effects:
            if hold.at is None:
                self._queue.cancel(hold.key, hold.tag)
            else:
                self._queue.set(hold.key, hold.tag, hold.at)

    def lowest(self) -> Hold:
        """The one that holds the watermark."""
        first = self._queue.first()
        if first is None:
            return Hold()
        return Hold(held_at(first.at), f"window {first.tag} of key {first.key!r}, which outputs at {first.at}")

    def write(self) -> None:
        """Make what has changed part of the commit."""
        for (key, tag), at in self._queue.take_changes().items():
            store_key = key_prefix(HOLD, key, self._hashed(key)) + b"e" + tag.encode()
            if at is None:
                self._overlay.delete(store_key)
            else:
                self._overlay.put(store_key, number8(at))
