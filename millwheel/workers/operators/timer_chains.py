"""Timers that set timers once the input has ended. Time has no end then, so a timer that always sets another would
produce rows without end."""

from __future__ import annotations

from millwheel.core.model.keys import Key
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import EndlessTimerError
from millwheel.workers.bundle.bundle import Bundle


class TimerChains:
    """Counts, for each key of one shard, the timers that timers have set after the end of the input: ``most`` may be.

    The count is lost with the worker. It needs not be more exact: beyond it nothing is committed, the run stops.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bundle: Bundle | None = None
        self._before: dict[Key, int] = {}
        self._here: dict[Key, int] = {}
        self._counted: Due | None = None
        self.firing: Due | None = None
        """The timer whose call is running."""

    def call(self, due: Due) -> TimerChains:
        """The call of a timer lasts as long as this context."""
        self.firing = due
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        self.firing = None

    def begin(self, bundle: Bundle) -> None:
        """Start of a bundle, or of another try of it, which undoes what the first has set."""
        self.firing = self._counted = None
        if bundle is not self._bundle:
            self._before |= self._here
            self._bundle = bundle
        self._here.clear()

    def add(self, key: Key, tag: str) -> None:
        """A call of a timer sets a timer. Raises EndlessTimerError; another attempt of the call counts once."""
        assert self._bundle is not None
        due = self.firing
        if self._bundle.watermark < MAX_TIME or due is None or due is self._counted:
            return
        count = self._here.get(key, self._before.get(key, 0)) + 1
        if count > self._most:
            raise EndlessTimerError(
                f"set_timer {tag!r}: timers have set timers {self._most:,} times for this key since the input "
                f"ended (limits.timers_after_end), up to {due.at} µs; let them stop, or the run never ends"
            )
        self._here[key], self._counted = count, due
