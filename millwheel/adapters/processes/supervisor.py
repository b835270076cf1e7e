"""Keeps named processes alive: starts them, and restarts them when they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millwheel.adapters.processes.exits import telling_line
from millwheel.adapters.processes.restarts import GiveUp, RestartPolicy, exit_words, has_failed
from millwheel.errors import SetupError

TOLD_FOR_S = 120.0
"""For so long a death is told to whoever looks at the run."""


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
    """Used by one thread, which steps it a few times a second. ``say`` gets a sentence about each
    death."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
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
        """Its next life does not repeat what ended this one: that it fails quickly is no reason to
        give it up."""
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
        words = telling_line(event.last_words) if has_failed(event.code) else ""
        why = f" ({words})" if words else ""
        if has_failed(event.code):
            process.failures += 1
            process.died_s, process.words = now_s, f"{exit_words(event.code)}{why}"
        when = f"in {decision.delay_s:.1f} s" if decision.delay_s else "at once"
        self._say(f"The {event.name} {exit_words(event.code)}{why}; it is started again {when}.")

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
            if process.words and (ago_s := max(now_s - process.died_s, 0.0)) < TOLD_FOR_S
        ]

    def restarts(self) -> dict[str, int]:
        """How often each process has been started again; processes that never died are left out."""
        return {
            name: process.policy.restarts
            for name, process in self._kept.items()
            if process.policy.restarts
        }
