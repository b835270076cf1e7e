"""Events of the embedded coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.formats.coordinator_messages import Ask


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A client said hello. Its session ends when nothing is heard of it for ``timeout_us``."""

    session: int
    timeout_us: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A session gave a sign of life."""

    session: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A session asks for something."""

    session: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A connection ended, and its session with it."""

    session: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


Event = SessionOpened | Heard | Asked | SessionClosed | Ticked
