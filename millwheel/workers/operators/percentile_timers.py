"""The timers of windows that obey percentile watermarks. They hold nothing back: the window's own timer comes later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millwheel.core.formats.store_layout import SHARE_TIMER, key_prefix, number8, number_from8, parse_timer
from millwheel.core.model.keys import KeyHash, key_from_bytes, key_hash
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windowing.contract import TimerEffect
from millwheel.core.windows.tags import share_of
from millwheel.workers.state.overlay import Overlay


class ShareTimers:
    """One queue per share. ``passed`` maps each share to its percentile watermark of the input (µs), and is kept up to
    date by the runtime."""

    def __init__(self, overlay: Overlay, passed: Mapping[float, int], hashed: KeyHash = key_hash) -> None:
        self._hashed = hashed
        self._overlay = overlay
        self._queues: dict[float, TimerQueue] = {}
        self.passed = passed
        for store_key, data in overlay.scan(SHARE_TIMER):
            key, _, tag = parse_timer(store_key)
            self._queue(share_of(tag) or 1.0).set(key_from_bytes(key), tag, number_from8(data))
        for queue in self._queues.values():
            queue.take_changes()  # entries that were read are no changes, and are not written again

    def set(self, timer: TimerEffect) -> None:
        """Set or cancel a timer with a share. Its tag names the share."""
        queue = self._queue(timer.share or 1.0)
        if timer.at is None:
            queue.cancel(timer.key, timer.tag)
        else:
            queue.set(timer.key, timer.tag, timer.at)

    def due(self) -> bool:
        """Whether :meth:`pop_due` would find something."""
        return any(queue.earliest() < self._clock(share) for share, queue in self._queues.items())

    def pop_due(self) -> Iterator[Due]:
        """The timers whose percentile watermark has passed their time, removed."""
        for share, queue in list(self._queues.items()):
            while timer := queue.pop_due(self._clock(share)):
                yield timer

    def write(self) -> None:
        """Write the changes into the commit."""
        for queue in self._queues.values():
            # In the store, because the window's own timer comes only with the low watermark: without this entry a
            # new owner emits no early pane. See test_a_crash_loses_no_timer_and_doubles_no_pane.
            for (key, tag), at in queue.take_changes().items():
                store_key = key_prefix(SHARE_TIMER, key, self._hashed(key)) + b"e" + tag.encode()
                if at is None:
                    self._overlay.delete(store_key)
                else:
                    self._overlay.put(store_key, number8(at))

    def _queue(self, share: float) -> TimerQueue:
        return self._queues.setdefault(share, TimerQueue(Domain.EVENT))

    def _clock(self, share: float) -> int:
        return self.passed.get(share, MIN_TIME)
