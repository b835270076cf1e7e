"""The visitors of a listener: the phase of each on its way in, its deadline, and which of them goes
when there are too many.

A visitor is a *stranger* until it is admitted: it is silent, or has not finished what it must show
first. A stranger may be displaced by a newcomer; a visitor that is being answered, or belongs to
the pipeline, never is. Time is an argument, and each phase has one deadline, so the first visitor
of a phase is always its oldest and the next one due.
"""

from __future__ import annotations

import heapq
import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from millwheel.adapters.front.limits import FrontLimits


class VisitPhase(Enum):
    """How far a visitor is on its way in."""

    SILENT = auto()
    """It has not sent a byte."""
    PAUSE = auto()
    """It was answered, and may ask again."""
    HEAD = auto()
    """In the middle of a handshake, of showing its token, or of the head of a request."""
    BODY = auto()
    """In the middle of the body of a request."""
    ANSWER = auto()
    """Its request is complete and is being answered."""
    PROBE = auto()
    """A health probe that is being answered: no other visitor can take its room."""
    STREAM = auto()
    """It is kept up to date until it leaves."""
    ADMITTED = auto()
    """It belongs to the pipeline, or has shown the token, and stays."""


_QUIET = (VisitPhase.SILENT, VisitPhase.PAUSE)
_HALFWAY = (VisitPhase.HEAD, VisitPhase.BODY)
STRANGERS = (*_QUIET, *_HALFWAY)
"""The phases in which a visitor may be displaced: first the silent ones, then the one that has been
in the middle of something for the longest time. A visitor with unread bytes is spared: then it is
we who are slow."""
_READ_S = 0.05  # so long newcomers wait for us to read the bytes of a stranger
# so long a stranger with unread bytes is spared; it could keep sending to hold its room
_PATIENCE_S = 2.0
_COUNTED = frozenset({VisitPhase.ANSWER, VisitPhase.STREAM, VisitPhase.ADMITTED})


@dataclass(slots=True, eq=False)
class Visitor:
    """One connection. ``hang_up`` ends it, from any thread; ``unread``: whether it has sent bytes
    that have not been read."""

    address: str
    hang_up: Callable[[], None]
    unread: Callable[[], bool] = lambda: False
    phase: VisitPhase = VisitPhase.SILENT
    since_s: float = 0.0
    left: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a newcomer may come in: at once if ``wait_s`` is 0. ``displaced`` has left for it,
    and is hung up on."""

    wait_s: float = 0.0
    displaced: Visitor | None = None


@dataclass(slots=True)
class Visitors:
    """All visitors of one listener. Not safe for threads."""

    limits: FrontLimits
    _phases: dict[VisitPhase, dict[Visitor, None]] = field(
        default_factory=lambda: {phase: {} for phase in VisitPhase}
    )
    _strangers_of: Counter[str] = field(default_factory=Counter)
    _admitted_of: Counter[str] = field(default_factory=Counter)

    @property
    def strangers(self) -> int:
        """The number of visitors that have not been admitted."""
        return sum(len(self._phases[phase]) for phase in STRANGERS)

    @property
    def admitted(self) -> int:
        """The number of admitted visitors, without probes."""
        return sum(len(self._phases[phase]) for phase in _COUNTED)

    def make_room(self, now_s: float) -> Room:
        """Room for one more stranger, of any address."""
        if self.strangers < self.limits.strangers:
            return Room()
        return self._displacing("", now_s)

    def arrive(self, visitor: Visitor, now_s: float) -> Room:
        """Let a newcomer in. With ``wait_s`` its address has too many strangers already, and it is
        not in."""
        address = visitor.address
        room = Room()
        most = min(self.limits.per_address, -(-self.limits.strangers // 2))
        if not _is_near(address) and self._strangers_of[address] >= most:
            room = self._displacing(address, now_s)
            if room.wait_s:
                return room
        self._enter(visitor, VisitPhase.SILENT, now_s)
        return room

    def advance(self, visitor: Visitor, phase: VisitPhase, now_s: float) -> bool:
        """Move a visitor to another phase. False, and nothing has changed, if too many have been
        admitted already, or if it has left."""
        if visitor.left:
            return False
        if (
            phase in _COUNTED
            and visitor.phase not in _COUNTED
            and not self._admits(visitor.address)
        ):
            return False
        self._exit(visitor)
        self._enter(visitor, phase, now_s)
        return True

    def leave(self, visitor: Visitor) -> None:
        """Forget a visitor. Idempotent."""
        if not visitor.left:
            visitor.left = True
            self._exit(visitor)

    def overdue(self, now_s: float) -> list[Visitor]:
        """Visitors whose time is over; each must be hung up on, and leaves."""
        overdue = []
        for phase, visitors in self._phases.items():
            limit_s = self.limit_s(phase)
            for visitor in visitors:
                if limit_s is None or visitor.since_s + limit_s > now_s:
                    break
                overdue.append(visitor)
        return overdue

    def next_due_s(self) -> float | None:
        """The next time at which :meth:`overdue` has something, without further moves; None if
        never."""
        due = [
            next(iter(visitors)).since_s + limit_s
            for phase, visitors in self._phases.items()
            if visitors and (limit_s := self.limit_s(phase)) is not None
        ]
        return min(due, default=None)

    def limit_s(self, phase: VisitPhase) -> float | None:
        """The deadline of a phase, from its begin."""
        limits = self.limits
        return {
            VisitPhase.SILENT: limits.silent_s,
            VisitPhase.PAUSE: limits.pause_s,
            VisitPhase.HEAD: limits.head_s,
            VisitPhase.BODY: limits.body_s,
            VisitPhase.ANSWER: limits.answer_s,
            VisitPhase.PROBE: limits.answer_s,
        }.get(phase)

    def _displacing(self, address: str, now_s: float) -> Room:
        """Displace the first stranger, of this address if one is given, that has had its time to
        send something."""
        wait_s = max(self.limits.grace_s, _READ_S)
        for phases in (_QUIET, _HALFWAY):
            for each in heapq.merge(
                *(self._phases[phase] for phase in phases), key=lambda each: each.since_s
            ):
                if address and each.address != address:
                    continue
                left_s = each.since_s + self.limits.grace_s - now_s
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                    break  # the others came later
                if left_s < -_PATIENCE_S or not each.unread():
                    self.leave(each)
                    return Room(displaced=each)
        return Room(wait_s)

    def _admits(self, address: str) -> bool:
        admitted = 0 if _is_near(address) else self._admitted_of[address]
        return self.admitted < self.limits.most and admitted < self.limits.per_address

    def _enter(self, visitor: Visitor, phase: VisitPhase, now_s: float) -> None:
        visitor.phase, visitor.since_s = phase, now_s
        self._phases[phase][visitor] = None
        self._count(visitor, 1)

    def _exit(self, visitor: Visitor) -> None:
        del self._phases[visitor.phase][visitor]
        self._count(visitor, -1)

    def _count(self, visitor: Visitor, by: int) -> None:
        if visitor.phase is VisitPhase.PROBE:
            return
        counts = self._admitted_of if visitor.phase in _COUNTED else self._strangers_of
        counts[visitor.address] += by
        if not counts[visitor.address]:
            del counts[visitor.address]


def _is_near(address: str) -> bool:
    """Whether an address is of this machine: there, members and strangers have the same one."""
    return address == "127.0.0.1" or ipaddress.ip_address(address.partition("%")[0]).is_loopback
