"""The health of a worker: the measures that it reports in INFO, and the degree that follows from
them. Pure.

Each measure has two bounds: up to the first its degree is 1 (fine), from the second on it is 0, and
linear in between. The degree of a worker is the lowest of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

POOR = 0.25
"""A worker below this degree is asked only where no other worker could answer."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "lag": (0.2, 2.0),
    "memory": (0.9, 0.99),
    "disk": (0.92, 0.995),
    "errors": (0.05, 0.5),
}
"""By measure: the value up to which the degree is 1, and the value from which on it is 0."""


@dataclass(frozen=True, slots=True)
class Health:
    """``lag_s``: how long the worker's loop has been in its current step (s), and so how long
    queries wait. ``memory``, ``disk``: their used shares. ``errors``: the share of recent queries
    that failed through a fault of the worker."""

    lag_s: float = 0.0
    memory: float = 0.0
    disk: float = 0.0
    errors: float = 0.0

    @property
    def degree(self) -> float:
        """From 1 (fine) to 0."""
        values = {
            "lag": self.lag_s,
            "memory": self.memory,
            "disk": self.disk,
            "errors": self.errors,
        }
        return min(
            min(max((bad - values[name]) / (bad - fine), 0.0), 1.0)
            for name, (fine, bad) in _BOUNDS.items()
        )

    def section(self) -> bytes:
        """A section of INFO."""
        return (
            f"# Health\r\nhealth:{self.degree:.2f}\r\nlag_seconds:{self.lag_s:.3f}\r\n"
            f"memory_used_ratio:{self.memory:.3f}\r\ndisk_used_ratio:{self.disk:.3f}\r\nerror_ratio:{self.errors:.3f}\r\n"
        ).encode()


def degree_in(info: object) -> float:
    """The degree in a reply to INFO; 1 where there is none."""
    for line in info.split(b"\r\n") if isinstance(info, bytes) else ():
        name, _, value = line.partition(b":")
        if name == b"health":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0


@dataclass(slots=True)
class ErrorShare:
    """Counts replies, and how many of them failed, over the last one to two windows of time. Any
    thread may call it."""

    window_s: float = 5.0
    _replies: int = 0
    _failed: int = 0
    _before: tuple[int, int] = (0, 0)
    _since_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def replied(self, failed: bool = False) -> None:
        """Count one reply."""
        with self._lock:
            self._replies += 1
            self._failed += failed

    def share(self, now_s: float) -> float:
        """The failed part of the replies, from 0.0 to 1.0. ``now_s`` is a monotonic time."""
        # INFO and the metrics ask on threads of their own. Without the lock, both would close the
        # same window, and the second would take the empty new one for the one before: all failures
        # would be forgotten.
        with self._lock:
            replies, failed = self._replies + self._before[0], self._failed + self._before[1]
            if now_s - self._since_s >= self.window_s:
                self._before, self._replies, self._failed = (self._replies, self._failed), 0, 0
                self._since_s = now_s
        return failed / replies if replies else 0.0
