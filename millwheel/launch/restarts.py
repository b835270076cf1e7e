"""When a process that ended is started again: pure decisions, one object per process.

A crash is normal and is answered at once. A process that dies again within seconds waits a little longer each
time; one that keeps failing by itself is given up, because something is wrong that a restart does not mend
(a callback module that is missing on the executor). Being killed from outside never counts towards giving up.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from millwheel.launch.exits import Exit

QUICK_S = 5.0
"""A life shorter than this is a quick death."""
PATIENCE = 3
"""So many quick deaths in a row are answered without delay."""
GIVE_UP = 10
"""So many quick failures in a row end the run."""
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 3.0
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start it again; ``reason`` completes the sentence "the worker of slot 1 …"."""

    reason: str


def exit_words(code: int) -> str:
    """An exit code in words, completing a sentence about the process."""
    if code == Exit.FENCED:
        return "was fenced: its work had been given to others"
    if code == Exit.HUNG:
        return "ended because a callback did not return (its log names it)"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


@dataclass(slots=True)
class RestartPolicy:
    """The story of one supervised process; ask it once per death."""

    quick_deaths: int = 0
    quick_failures: int = 0
    restarts: int = 0

    def after(self, code: int, lived_s: float) -> Restart | GiveUp:
        """What to do about a process that lived ``lived_s`` seconds and ended with ``code``."""
        if code == Exit.BAD_CONFIG:
            return GiveUp("cannot run as it is configured")
        quick = lived_s < QUICK_S
        self.quick_deaths = self.quick_deaths + 1 if quick else 0
        failed = code not in _KILLED and code != Exit.FENCED
        self.quick_failures = self.quick_failures + 1 if quick and failed else self.quick_failures if quick else 0
        if self.quick_failures >= GIVE_UP:
            return GiveUp(f"{exit_words(code)}, {self.quick_failures} times within seconds of its start")
        self.restarts += 1
        return Restart(self._delay_s())

    def _delay_s(self) -> float:
        late = self.quick_deaths - PATIENCE
        return 0.0 if late <= 0 else min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** (late - 1))
