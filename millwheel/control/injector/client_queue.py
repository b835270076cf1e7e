"""The unsent messages of one connection. Newer values replace older ones, so a slow reader costs
bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.wire import tally_messages
from millwheel.core.model.failures import CallKind, Tally


class ClientQueue:
    """Filled by the service's loop, emptied by gRPC's thread for the stream."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._watermarks: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._tallies: dict[str, Mapping[CallKind, Tally]] = {}
        self._greet = False
        self._closed = False

    def greet(self, watermarks: Mapping[str, int]) -> None:
        """Send a first message, even an empty one: it shows the worker that this service leads."""
        with self._ready:
            self._watermarks.update(watermarks)
            self._greet = True
            self._ready.notify()

    def watermarks(self, watermarks: Mapping[str, int]) -> None:
        """Published watermarks (µs) that rose."""
        with self._ready:
            self._watermarks.update(watermarks)
            self._ready.notify()

    def tallies(self, tallies: Mapping[str, Mapping[CallKind, Tally]]) -> None:
        """Numbers of calls and failures, by node."""
        with self._ready:
            self._tallies.update(tallies)
            self._ready.notify()

    def tokens(self, tokens: Mapping[str, int]) -> None:
        """Tokens of shards that count from now on: older ones are refused."""
        with self._ready:
            self._tokens.update(tokens)
            self._ready.notify()

    def close(self) -> None:
        """End the stream; unsent messages are dropped."""
        with self._ready:
            self._closed = True
            self._ready.notify()

    def messages(self) -> Iterator[pb.Broadcast]:
        """Blocks for the next message until the queue is closed."""
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> pb.Broadcast | None:
        with self._ready:
            self._ready.wait_for(lambda: self._closed or self._greet or self._has_news())
            if self._closed:
                return None
            watermarks, self._watermarks = self._watermarks, {}
            tokens, self._tokens = self._tokens, {}
            tallies, self._tallies = self._tallies, {}
            self._greet = False
        return pb.Broadcast(
            watermarks=[
                pb.Watermark(node=node, watermark_us=us) for node, us in watermarks.items()
            ],
            known=[pb.TokenKnown(shard=shard, token=token) for shard, token in tokens.items()],
            tallies=tally_messages(tallies),
        )

    def _has_news(self) -> bool:
        return bool(self._watermarks or self._tokens or self._tallies)
