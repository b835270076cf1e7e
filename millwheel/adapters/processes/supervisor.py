"""Keeps named processes alive: starts them, and decides when to restart one that has ended.

After a crash, the process is restarted at once. If it fails again within seconds of its start, the
delay grows each time. If it keeps failing by itself, it is given up, because a restart does not
mend the cause (for example a callback module that is missing on the executor). A process that was
killed from outside, or fenced, has not failed: this counts towards neither rule, and it is always
restarted at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from millwheel.adapters.processes.exits import Exit, summary_line
from millwheel.errors import SetupError

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
    """Whether the process has ended by its own doing: by an exit, a crash, or a kill by the kernel
    because it ``lacked_memory``. Our own exit codes stand for another cause."""
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


SHOWN_FOR_S = 120.0
"""For so long a death is shown to people who look at the run."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """One life of a process is over. ``code`` is as in :mod:`subprocess`."""

    name: str
    code: int
    lived_s: float
    last_words: str = ""


@dataclass(slots=True)
class _Kept:
    start: Callable[[], None]
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    due_s: float | None = None
    failures: int = 0
    died_s: float = 0.0
    words: str = ""


class Supervisor:
    """Used by one thread, which steps it a few times a second. ``report`` gets a sentence about
    each death."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._kept: dict[str, _Kept] = {}
        self._let_go: dict[str, Callable[[], None]] = {}

    def keep(self, name: str, start: Callable[[], None]) -> None:
        """Start a process and keep it alive. ``start`` must not block."""
        self._kept[name] = _Kept(start)
        start()

    def let_go(self, name: str, ended: Callable[[], None]) -> None:
        """Do not restart a process after its next death; ``ended`` is called then, or at once if it
        is already dead."""
        process = self._kept.pop(name)
        if process.due_s is None:
            self._let_go[name] = ended
        else:
            ended()

    def gets_further(self, name: str) -> None:
        """Its next life does not repeat the cause of this death: failing quickly is then not a
        reason to give it up."""
        if (process := self._kept.get(name)) is not None:
            process.policy.quick_failures = 0

    def ended(self, event: ProcessEnded, now_s: float) -> None:
        """Handle the end of a process. Raises SetupError, with the last lines of its log, when a
        restart would not help."""
        if event.name in self._let_go:
            self._let_go.pop(event.name)()
            return
        process = self._kept[event.name]
        decision = process.policy.after(event.code, event.lived_s)
        if isinstance(decision, GiveUp):
            words = f" Its last words:\n{event.last_words}" if event.last_words else ""
            raise SetupError(f"The {event.name} {decision.reason}.{words}")
        process.due_s = now_s + decision.delay_s
        words = summary_line(event.last_words) if has_failed(event.code) else ""
        why = f" ({words})" if words else ""
        if has_failed(event.code):
            process.failures += 1
            process.died_s, process.words = now_s, f"{exit_words(event.code)}{why}"
        when = f"in {decision.delay_s:.1f} s" if decision.delay_s else "at once"
        self._report(f"The {event.name} {exit_words(event.code)}{why}; it is started again {when}.")

    def step(self, now_s: float) -> None:
        """Start the processes that are due."""
        for process in self._kept.values():
            if process.due_s is not None and process.due_s <= now_s:
                process.due_s = None
                process.start()

    def deaths(self, now_s: float) -> list[str]:
        """Sentences about processes that have failed of late, with their last words. Any thread."""
        return [
            f"{name} {process.words}"
            f"{f', {process.failures} times so far' if process.failures > 1 else ''},"
            f" {ago_s:.0f} s ago"
            for name, process in list(self._kept.items())
            if process.words and (ago_s := max(now_s - process.died_s, 0.0)) < SHOWN_FOR_S
        ]

    def restarts(self) -> dict[str, int]:
        """The number of restarts of each process; processes that never died are left out."""
        return {
            name: process.policy.restarts
            for name, process in self._kept.items()
            if process.policy.restarts
        }
