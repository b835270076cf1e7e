"""The waits of this process, with their reasons: the one source for ``millwheel run``, ``millwheel
status`` and the page.

Code that tries something again notes the reason of each failed try, and the end of the wait. A wait
that has lasted for :data:`REPORT_AFTER_S` seconds is shown to people; one without a new note for a
while is over: its shard has moved.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from millwheel.adapters.secret_values import masked

REPORT_AFTER_S = 10.0
"""A wait is shown after so many seconds: fail-overs and restarts are over sooner."""
_FORGET_AFTER_S = 120.0
"""Longer than one try of any client may take."""
_MOST_CHARS = 500  # of a reason: servers answer with whole statements


class Waiting(msgspec.Struct, frozen=True):
    """A wait of one process: for ``what``, for ``for_s`` seconds, with the reason of the last
    try."""

    what: str
    why: str
    for_s: float

    def in_words(self) -> str:
        """One sentence, without its full stop."""
        return f"{self.what}: {self.why} (for {self.for_s:.0f} s)"


class Wait:
    """One wait, under the name that people see. Any thread may call it."""

    def __init__(self, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self.what = what
        self._now = now
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._noted_s = 0.0
        self._why = ""

    def noted(self, why: str) -> float:
        """A try has failed, for this reason. Returns for how many seconds they have been failing: 0
        at the first."""
        now_s = self._now()
        with self._lock:
            if self._since_s is None or now_s - self._noted_s > _FORGET_AFTER_S:
                self._since_s = now_s
            self._noted_s, self._why = now_s, masked(why)[:_MOST_CHARS]
            return now_s - self._since_s

    def over(self) -> float | None:
        """A try has worked. Returns for how many seconds they have failed before it; None if the
        last one worked."""
        if self._since_s is None:
            return None
        with self._lock:
            since_s, self._since_s = self._since_s, None
            return None if since_s is None else self._now() - since_s

    def waiting(self) -> Waiting | None:
        """The wait, if there is one."""
        now_s = self._now()
        with self._lock:
            if self._since_s is None or now_s - self._noted_s > _FORGET_AFTER_S:
                return None
            return Waiting(self.what, self._why, now_s - self._since_s)


_waits: dict[str, Wait] = {}
_lock = threading.Lock()


def wait_for(what: str) -> Wait:
    """The wait of this process for ``what``, shared by all callers that use this name: "PostgreSQL
    table sales at db:5432"."""
    with _lock:
        return _waits.setdefault(what, Wait(what))


def waiting(least_s: float = REPORT_AFTER_S) -> list[Waiting]:
    """The waits of this process that have lasted for ``least_s`` seconds, the longest first."""
    with _lock:
        open_waits = list(_waits.values())
    waits = [
        each
        for wait in open_waits
        if (each := wait.waiting()) is not None and each.for_s >= least_s
    ]
    return sorted(waits, key=lambda each: -each.for_s)


def forget() -> None:
    """Forget all waits, as in a new process."""
    with _lock:
        _waits.clear()
