"""The watermark service as a pure machine: an event in, effects out.

For each node it publishes the minimum over all key ranges of the node, once all have reported. That
minimum only rises (MillWheel, VLDB 2013, section 5.3). Consumers compute the minimum over their
inputs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from ddsketch import DDSketch

from millwheel.control.injector.effects import Broadcast, Effect, Greet, Tallies, TokensConfirmed
from millwheel.control.injector.events import (
    Connected,
    Disconnected,
    Event,
    NumbersReported,
    PublishDue,
    RangesChanged,
    ReportsArrived,
)
from millwheel.control.injector.node import NodeState
from millwheel.core.model.names import NodeName
from millwheel.core.model.percentiles import share_name
from millwheel.core.model.times import MIN_TIME

_NAMED_SILENT = 100  # silent shards that `millwheel status` names


@dataclass(frozen=True, slots=True)
class WatermarkView:
    """The watermark of a node, and the shard that holds it back.

    ``watermark_us`` is MIN_TIME until something was published. ``silent`` counts the shards that
    have not reported, and ``silent_shards`` names the first hundred of them.
    """

    node: NodeName
    watermark_us: int
    complete: bool
    holder_shard: str
    holder: str
    counters: dict[str, int]
    silent: int
    silent_shards: tuple[str, ...]
    stale_reports: int
    lower_reports: int


class Latencies:
    """Sampled latencies (ms) of the whole pipeline, mergeable and of bounded size."""

    def __init__(self) -> None:
        self._sketch = DDSketch(relative_accuracy=0.01)
        self._min, self._max = math.inf, 0.0

    def add(self, samples_ms: Iterable[float]) -> None:
        """Count samples; values that cannot be latencies (negative, not finite) are ignored."""
        for sample in samples_ms:
            if math.isfinite(sample) and sample >= 0:
                self._sketch.add(sample)
                self._min, self._max = min(self._min, sample), max(self._max, sample)

    def quantiles_ms(self) -> tuple[float, ...]:
        """p50, p95, p99 within 1 %, and the maximum; empty without samples. They lie between the
        least sample and the greatest, which are exact: a bin of the sketch may reach beyond
        either."""
        if not self._sketch.count:
            return ()
        quantiles = [self._sketch.get_quantile_value(q) or 0.0 for q in (0.5, 0.95, 0.99)]
        marks = [min(max(mark, self._min), self._max) for mark in quantiles]
        return (*marks, self._max)


class InjectorState:
    """All nodes of one pipeline."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self._touched: dict[str, NodeState] = {}
        self.latencies = Latencies()

    def handle(self, event: Event) -> Sequence[Effect]:
        """The effects of ``event``. Nothing is broadcast before the next PublishDue."""
        match event:
            case ReportsArrived():
                self.latencies.add(event.latencies_ms)
                confirmed = self._touch(event.node).reported(
                    event.connection, event.reports, event.numbers
                )
                return [TokensConfirmed(event.connection, confirmed)] if confirmed else []
            case NumbersReported():
                node = self._touch(event.node)
                confirmed = node.reported_by_number(
                    event.connection, event.numbers, event.watermarks
                )
                return [TokensConfirmed(event.connection, confirmed)] if confirmed else []
            case PublishDue():
                return self._publish()
            case RangesChanged():
                answers = self._touch(event.table.computation).table_changed(event.table)
                return [
                    TokensConfirmed(connection, tokens)
                    for connection, tokens in answers.items()
                    if tokens
                ]
            case Connected():
                by_node = {name: node.tallies() for name, node in self._nodes.items() if node.fails}
                effects: list[Effect] = [Greet(event.connection, self.published())]
                return [*effects, Tallies(by_node, event.connection)] if by_node else effects
            case Disconnected():
                for node in self._nodes.values():
                    node.disconnected(event.connection)
                return []

    def _touch(self, name: str) -> NodeState:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeState()
        self._touched[name] = node
        return node

    def _publish(self) -> list[Effect]:
        touched, self._touched = self._touched, {}
        risen = {name: node.publish() for name, node in touched.items()}
        watermarks = {name: us for name, us in risen.items() if us is not None}
        for name, node in touched.items():
            watermarks.update(
                {share_name(name, share): us for share, us in node.publish_shares().items()}
            )
        by_node = {
            name: tallies
            for name, node in touched.items()
            if (tallies := node.publish_tallies()) is not None
        }
        effects: list[Effect] = [Broadcast(watermarks)] if watermarks else []
        return [*effects, Tallies(by_node)] if by_node else effects

    def published(self) -> dict[str, int]:
        """Every watermark published so far (µs), by node, percentile watermarks by
        :func:`share_name`."""
        watermarks = {
            name: node.published for name, node in self._nodes.items() if node.published is not None
        }
        for name, node in self._nodes.items():
            watermarks.update(
                {share_name(name, share): us for share, us in node.published_shares.items()}
            )
        return watermarks

    def validate(self) -> None:
        """Raise InvariantError unless each node's reports hold together. For tests."""
        for node in self._nodes.values():
            node.validate()

    def view(self) -> list[WatermarkView]:
        """The status of every node that has a table, by name."""
        return [
            _view(NodeName(name), node)
            for name, node in sorted(self._nodes.items())
            if node.version >= 0
        ]


def _view(name: NodeName, node: NodeState) -> WatermarkView:
    index = node.index
    holder = int(index.values.argmin())
    silent = np.flatnonzero(~index.reported)
    return WatermarkView(
        node=name,
        watermark_us=MIN_TIME if node.published is None else node.published,
        complete=node.complete,
        holder_shard=index.entries[holder].shard,
        holder=str(index.holders[holder]) if index.reported[holder] else "has not reported yet",
        counters=dict(node.totals()),
        silent=len(silent),
        silent_shards=tuple(index.entries[row].shard for row in silent[:_NAMED_SILENT].tolist()),
        stale_reports=node.stale_reports,
        lower_reports=node.lower_reports,
    )
