"""A target that does not answer: when it is tried again, and what is logged meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from millwheel.secret_values import masked

log = logging.getLogger("millwheel.connectors")

NO_ROWS = "%s does not take rows%s: %s. They wait, and the input with them; nothing is lost."
"""What is said of a target of sinks: its name, since when, and its words."""
SAY_EVERY_S = 60.0
"""Between sentences about one target that is away."""
LONGEST_WAIT_S = 2.0
"""Between two tries to write to a target that is away."""
_FIRST_WAIT_S = 0.1  # most absences are over at once: a fail-over, a restart


class Absence:
    """The absence of one target, shared by all its writers in this process. Any thread may call it.

    The first failure is logged at once, then one sentence a minute, however many shards wait for the target."""

    def __init__(
        self,
        where: str,
        now: Callable[[], float] = time.monotonic,
        say: Callable[..., None] = log.warning,
        sentence: str = NO_ROWS,
    ) -> None:
        self._sentence = sentence
        self._where = where
        self._now = now
        self._say = say
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._said_s = 0.0

    def noted(self, reason: str) -> None:
        """It has not answered."""
        now_s = self._now()
        with self._lock:
            begins = self._since_s is None
            if self._since_s is None:
                self._since_s = now_s
            elif now_s < self._said_s + SAY_EVERY_S:
                return
            self._said_s, away_s = now_s, now_s - self._since_s
        since = "" if begins else f" for {away_s:.0f} s"
        self._say(self._sentence, self._where, since, masked(reason))

    def over(self) -> None:
        """It has answered."""
        if self._since_s is None:
            return
        with self._lock:
            since, self._since_s = self._since_s, None
        if since is not None:
            log.info("%s takes rows again after %.0f s", self._where, self._now() - since)


class BackOff:
    """How long one writer waits before it tries again: twice as long each time, up to ``longest_s``."""

    def __init__(self, longest_s: float = LONGEST_WAIT_S, sleep: Callable[[float], None] = time.sleep) -> None:
        self._longest_s = longest_s
        self._sleep = sleep
        self._wait_s = 0.0

    def wait(self) -> None:
        """Before a try. Returns at once unless the last one failed."""
        if self._wait_s:
            self._sleep(self._wait_s)

    def failed(self) -> None:
        """The next try waits longer."""
        self._wait_s = min(max(self._wait_s * 2, _FIRST_WAIT_S), self._longest_s)

    def worked(self) -> None:
        """The next try waits no more."""
        self._wait_s = 0.0


_known: dict[str, Absence] = {}
_lock = threading.Lock()


def absence_of(where: str, sentence: str = NO_ROWS) -> Absence:
    """The one of a target in this process, by its name in sentences."""
    with _lock:
        return _known.setdefault(where, Absence(where, sentence=sentence))


def forget() -> None:
    """No target is known to be away, as in a new process."""
    with _lock:
        _known.clear()
