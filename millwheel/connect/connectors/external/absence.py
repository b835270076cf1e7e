"""Handling of a target that does not answer: the times of retries, and the log messages
meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from millwheel.adapters.secret_values import masked
from millwheel.adapters.waits import Wait, wait_for

log = logging.getLogger("millwheel.connectors")

NO_ROWS = "%s does not take rows%s: %s. They wait, and the input with them; nothing is lost."
"""The log message about a sink's target: its name, the time since when, and its error."""
LOG_EVERY_S = 60.0
"""Between log messages about one unavailable target (s)."""
LONGEST_WAIT_S = 2.0
"""The longest time between two attempts to write to an unavailable target (s)."""
_FIRST_WAIT_S = 0.1  # most absences are over at once: a fail-over, a restart


class Absence:
    """The absence of one target, shared by all its writers in this process. Any thread may call it.

    The first failure is logged at once, then one sentence a minute, however many shards wait for
    the target. The ``wait`` shows the same in ``millwheel run``, ``millwheel status`` and the page;
    a text stands for the wait of that name."""

    def __init__(
        self, wait: Wait | str, report: Callable[..., None] = log.warning, sentence: str = NO_ROWS
    ) -> None:
        self._wait = wait_for(wait) if isinstance(wait, str) else wait
        self._sentence = sentence
        self._report = report
        self._lock = threading.Lock()
        self._logged_s: float | None = None

    def noted(self, reason: str) -> None:
        """Note that the target has not answered."""
        away_s = self._wait.noted(reason)
        with self._lock:
            logged_s = self._logged_s
            if logged_s is not None and logged_s <= away_s < logged_s + LOG_EVERY_S:
                return
            self._logged_s = away_s
        since = f" for {away_s:.0f} s" if away_s else ""
        self._report(self._sentence, self._wait.what, since, masked(reason))

    def over(self) -> None:
        """Note that the target has answered."""
        if (away_s := self._wait.over()) is not None:
            self._logged_s = None
            log.info("%s takes rows again after %.0f s", self._wait.what, away_s)


class BackOff:
    """The pauses of one writer between its attempts: twice as long each time, up to
    ``longest_s``."""

    def __init__(
        self, longest_s: float = LONGEST_WAIT_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._longest_s = longest_s
        self._sleep = sleep
        self._wait_s = 0.0

    def wait(self) -> None:
        """Call before an attempt. Returns at once unless the last one failed."""
        if self._wait_s:
            self._sleep(self._wait_s)

    def failed(self) -> None:
        """Note a failure: the next attempt waits longer."""
        self._wait_s = min(max(self._wait_s * 2, _FIRST_WAIT_S), self._longest_s)

    def worked(self) -> None:
        """Note a success: the next attempt does not wait."""
        self._wait_s = 0.0


_absences: dict[str, Absence] = {}
_lock = threading.Lock()


def absence_of(where: str, sentence: str = NO_ROWS) -> Absence:
    """The shared object of a target in this process, by its name in messages."""
    with _lock:
        return _absences.setdefault(where, Absence(wait_for(where), sentence=sentence))


def forget() -> None:
    """Forget all absences, as in a new process."""
    with _lock:
        _absences.clear()
