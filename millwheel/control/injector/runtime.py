"""A step of the watermark service's loop: take events, pass them to the pure machine, answer the
connections.

The first report after an idle period is published at once. While reports keep coming, one broadcast
per ``publish_every_us`` serves many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from millwheel.control.injector.effects import Broadcast, Effect, Greet, Tallies, TokensConfirmed
from millwheel.control.injector.events import Connected, Disconnected, Event, PublishDue
from millwheel.control.injector.state import InjectorState
from millwheel.core.model.failures import CallKind, Tally
from millwheel.core.model.times import MAX_TIME

PUBLISH_EVERY_US = 2_000  # watermarks are published at most this often: a part of every latency


class Subscriber(Protocol):
    """The messages to one connection; no call waits for the reader."""

    def greet(self, watermarks: Mapping[str, int]) -> None:
        """The first message, even if it is empty: all published watermarks (µs), by node."""

    def watermarks(self, watermarks: Mapping[str, int]) -> None:
        """Watermarks that rose."""

    def tallies(self, tallies: Mapping[str, Mapping[CallKind, Tally]]) -> None:
        """Tallies of calls, by node."""

    def tokens(self, tokens: Mapping[str, int]) -> None:
        """Tokens to confirm, by shard."""

    def close(self) -> None:
        """No more messages follow."""


class InjectorRuntime:
    """One watermark service. :meth:`step` is for one thread; connections come and go on any."""

    def __init__(self, publish_every_us: int = PUBLISH_EVERY_US) -> None:
        self.state = InjectorState()
        self._publish_every_us = publish_every_us
        self._lines: dict[int, Subscriber] = {}
        self._next_publish_us = 0
        self._dirty = False

    def connect(self, connection: int, line: Subscriber) -> Connected:
        """Serve a connection, from the step that gets the returned event."""
        self._lines[connection] = line
        return Connected(connection)

    def disconnect(self, connection: int) -> None:
        """Forget a connection. The reports of its shards stay."""
        line = self._lines.pop(connection, None)
        if line is not None:
            line.close()

    def close(self) -> None:
        """End every connection."""
        for connection in list(self._lines):
            self.disconnect(connection)

    def step(self, events: Sequence[Event], now_us: int) -> int:
        """Handle ``events`` and publish if it is time. Returns the monotonic time (µs) of the next
        step without events."""
        for event in events:
            self._perform(self.state.handle(event))
            self._dirty = self._dirty or not isinstance(event, Connected | Disconnected)
        if self._dirty and now_us >= self._next_publish_us:
            self._dirty = False
            self._next_publish_us = now_us + self._publish_every_us
            self._perform(self.state.handle(PublishDue()))
        return self._next_publish_us if self._dirty else MAX_TIME

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Broadcast():
                    for line in list(self._lines.values()):
                        line.watermarks(effect.watermarks)
                case Tallies():
                    for connection, line in list(self._lines.items()):
                        if effect.connection in (None, connection):
                            line.tallies(effect.tallies)
                case TokensConfirmed():
                    if (answered := self._lines.get(effect.connection)) is not None:
                        answered.tokens(effect.tokens)
                case Greet():
                    if (opened := self._lines.get(effect.connection)) is not None:
                        opened.greet(effect.watermarks)
