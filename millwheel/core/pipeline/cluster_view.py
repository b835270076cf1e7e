"""How far the nodes of a running pipeline are, as the injector says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millwheel.core.model.failures import CallKind, First, Tally
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import Graph

Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeView:
    """The state of one node: its watermark in µs, whether all ranges have reported, the holder of
    the watermark, its counters; the outcome of recent calls, if some failed, and the first
    failures."""

    name: str
    watermark_us: int
    complete: bool
    holder: str
    counters: Counters
    tallies: Mapping[CallKind, Tally] = field(default_factory=dict)
    firsts: Sequence[First] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes in the injector's latest answer, and quantiles of latency at the sinks in ms."""

    nodes: Mapping[str, NodeView]
    latency_ms: Sequence[float] = ()

    def drained(self, graph: Graph) -> bool:
        """Whether every record of a bounded input has gone all the way."""
        views = [self.nodes.get(name) for name in graph.nodes]
        return all(
            view is not None and view.complete and view.watermark_us == MAX_TIME for view in views
        )
