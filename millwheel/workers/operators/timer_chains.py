"""Timers that set timers once the input has ended. Time has no end then, so a timer that always sets another would
produce rows without end."""

from __future__ import annotations

from millwheel.core.formats.store_layout import STATE, key_prefix
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import EndlessTimerError
from millwheel.workers.bundle.bundle import Bundle

_NAME = "\U0010ffffn".encode()  # Fixed: no state of a callback has such a name


class TimerChains:
    """Counts, for each key of one shard, the timers that timers have set after the end of the input: ``most`` may be.

    The count is stored with the key's state. So it is that of all owners of the shard, and what undoes a call undoes
    its share.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bundle: Bundle | None = None
        self._counted = False
        self.firing: Due | None = None
        """The timer whose call is running."""

    def call(self, due: Due) -> TimerChains:
        """The call of a timer, or another attempt of it, lasts as long as this context."""
        self.firing, self._counted = due, False
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        self.firing = None

    def begin(self, bundle: Bundle) -> None:
        """Start of a bundle, or of another try of it."""
        self.firing, self._bundle = None, bundle

    def add(self, key: Key, tag: str) -> None:
        """A call of a timer sets a timer, perhaps not its first. Raises EndlessTimerError."""
        assert self._bundle is not None
        if self._bundle.watermark < MAX_TIME or self.firing is None or self._counted:
            return
        self._counted = True
        overlay, kept_at = self._bundle.overlay, key_prefix(STATE, key, key_hash(key)) + _NAME
        count = int.from_bytes(overlay.get(kept_at) or b"", "big") + 1
        if count > self._most:
            raise EndlessTimerError(
                f"set_timer {tag!r}: timers have set timers {self._most:,} times for this key since the input "
                f"ended (limits.timers_after_end), up to {self.firing.at} µs; let them stop, or the run never ends"
            )
        overlay.put(kept_at, count.to_bytes(8, "big"))
