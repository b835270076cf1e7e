"""Effects of the embedded coordinator.

The order matters: stored values must be durable before any message of the same step, or of a later
one, is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.formats.coordinator_messages import StoredTable, ToClient


@dataclass(frozen=True, slots=True)
class StoreTable:
    """Make a version of a table durable."""

    table: StoredTable


@dataclass(frozen=True, slots=True)
class StoreValue:
    """Make a named value durable."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a session."""

    session: int
    message: ToClient


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection of a session after its last message."""

    session: int


Effect = StoreTable | StoreValue | SendMessage | HangUp
