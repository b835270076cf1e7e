"""Effects of the watermark service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millwheel.core.model.failures import CallKind, Tally


@dataclass(frozen=True, slots=True)
class Greet:
    """Tell one new connection all published watermarks (µs, by node), be it none."""

    connection: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Tell every connection the watermarks that rose."""

    watermarks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tallies:
    """Tell every connection (or one) how calls of nodes went, where some failed."""

    tallies: Mapping[str, Mapping[CallKind, Tally]]
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class TokensKnown:
    """Tell a reporter that older tokens of these shards are refused from now on: it may ack deliveries."""

    connection: int
    tokens: Mapping[str, int]


Effect = Greet | Broadcast | Tallies | TokensKnown
