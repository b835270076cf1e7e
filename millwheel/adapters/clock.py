"""The real clocks, and one that bears with them."""

from __future__ import annotations

import time

from millwheel.adapters.ports import Clock


class SystemClock:
    """See :class:`millwheel.adapters.ports.Clock`."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000


class SteadyClock:
    """A clock whose wall time never goes back and never stands still, for a loop that waits for its
    own times.

    When the wall clock is set forward it follows at once. When that is set back, it goes on at half
    speed until the wall clock has caught up: a process must not sleep for an hour because the clock
    was set back by one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now_us = clock.now_us()
        self._seen_us = clock.monotonic_us()

    def now_us(self) -> int:
        """See :class:`millwheel.adapters.ports.Clock`."""
        wall_us = self._clock.now_us()
        half_us = max(0, self._clock.monotonic_us() - self._seen_us) // 2
        if wall_us >= self._now_us + half_us:
            self._now_us, self._seen_us = wall_us, self._clock.monotonic_us()
        else:
            self._now_us += half_us
            self._seen_us += 2 * half_us
        return self._now_us

    def monotonic_us(self) -> int:
        """See :class:`millwheel.adapters.ports.Clock`."""
        return self._clock.monotonic_us()
