"""The real clocks."""

from __future__ import annotations

import time


class SystemClock:
    """See :class:`millwheel.ports.Clock`."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000
