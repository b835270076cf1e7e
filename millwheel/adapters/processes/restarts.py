"""Decides when to restart a process that ended: one object per process. Pure.

After a crash, the process is restarted at once. If it fails again within seconds of its start, the
delay grows each time. If it keeps failing by itself, it is given up, because a restart does not
mend the cause (for example a callback module that is missing on the executor). A process that was
killed from outside, or fenced, has not failed: this counts towards neither rule, and it is always
restarted at once.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from millwheel.adapters.processes.exits import Exit

QUICK_S = 5.0
"""A failure after a shorter life is a quick one."""
PATIENCE = 3
"""After up to this many quick failures in a row, the process restarts without delay."""
GIVE_UP = 10
"""This many quick failures in a row end the run."""
_FIRST_DELAY_S = 0.1  # before a process that fails quickly is started again; doubles
_LONGEST_DELAY_S = 3.0  # before such a process is started again
_CRASHES = frozenset(
    {
        -signal.SIGSEGV,
        -signal.SIGABRT,
        -signal.SIGBUS,
        -signal.SIGILL,
        -signal.SIGFPE,
        -signal.SIGSYS,
    }
)
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


def ended_of_itself(code: int, lacked_memory: bool) -> bool:
    """Whether what the process did has ended it: an exit, a crash, or a kill by the kernel because
    it ``lacked_memory``. Our own exit codes say that something else was the cause."""
    if code == -signal.SIGKILL:
        return lacked_memory
    return code in _CRASHES or (code >= 0 and code not in (Exit.BAD_CONFIG, Exit.HUNG, Exit.FENCED))


def has_failed(code: int) -> bool:
    """Whether a process ended of itself, by an error: it was neither killed from outside nor
    fenced."""
    return code not in _KILLED and code != Exit.FENCED


@dataclass(slots=True)
class RestartPolicy:
    """The history of one supervised process; call :meth:`after` once per death."""

    quick_failures: int = 0
    restarts: int = 0

    def after(self, code: int, lived_s: float) -> Restart | GiveUp:
        """The reaction to the end of a process that lived ``lived_s`` seconds and ended with
        ``code``."""
        if code == Exit.BAD_CONFIG:
            return GiveUp("cannot run as it is configured")
        failed = has_failed(code)
        if lived_s >= QUICK_S:
            self.quick_failures = 0
        elif failed:
            self.quick_failures += 1
        if self.quick_failures >= GIVE_UP:
            return GiveUp(
                f"{exit_words(code)}, {self.quick_failures} times within seconds of its start"
            )
        self.restarts += 1
        return Restart(self._delay_s() if failed else 0.0)

    def _delay_s(self) -> float:
        late = self.quick_failures - PATIENCE
        return 0.0 if late <= 0 else min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** (late - 1))
