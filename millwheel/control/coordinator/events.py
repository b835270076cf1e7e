"""Events of the embedded coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.formats.coordinator_messages import Ask


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A client opened a session. The session ends when nothing is received from it for
    ``timeout_us``."""

    session: int
    timeout_us: int


@dataclass(frozen=True, slots=True)
class HeartbeatArrived:
    """A session sent a heartbeat."""

    session: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A session sent a request."""

    session: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A connection ended, and its session with it."""

    session: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


Event = SessionOpened | HeartbeatArrived | Asked | SessionClosed | Ticked
