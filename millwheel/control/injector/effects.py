"""Effects of the watermark service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millwheel.core.model.failures import CallKind, Tally


@dataclass(frozen=True, slots=True)
class Greet:
    """Send all published watermarks (µs, by node) to one new connection, even if there are none."""

    connection: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send the watermarks that rose to every connection."""

    watermarks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tallies:
    """Send tallies of calls, for nodes with failures, to every connection or to one."""

    tallies: Mapping[str, Mapping[CallKind, Tally]]
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class TokensConfirmed:
    """Confirm to a reporter that older tokens of these shards are refused from now on, so that it
    may ack deliveries."""

    connection: int
    tokens: Mapping[str, int]


Effect = Greet | Broadcast | Tallies | TokensConfirmed
