"""The graph that runs: sources, computations and sinks are all nodes with key ranges, shards and
commits. And the progress of its nodes, by the injector's latest answer."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millwheel.core.model.failures import SHARE, CallKind, First, OnError, Tally
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.percentiles import Shares
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.skew import hash_of_keys
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    BranchesSpec,
    EnrichSpec,
    JoinSpec,
    RegularJoinSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
)
from millwheel.core.slices.slots import WIDTH
from millwheel.core.windows.panes import Accumulation


class NodeKind(Enum):
    """The kind of operator in the shards of a node."""

    SOURCE = "source"
    COMPUTATION = "computation"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Its ``name`` is also the name of its range table: ``source.hits``, ``traffic``,
    ``sink.alerts``."""

    name: str
    kind: NodeKind
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    stream: StreamSpec | None = None
    computation: ComputationSpec | None = None
    sink: SinkSpec | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes by name, the consumers of each stream, the producers that feed each node, and the
    shares for which its percentile watermark is needed. ``chained``: for each chained node, the
    node that it follows in its shards."""

    nodes: dict[str, Node]
    consumers: dict[str, tuple[str, ...]]
    feeders: dict[str, tuple[str, ...]]
    shares: dict[str, Shares] = field(default_factory=dict)
    chained: Mapping[str, str] = field(default_factory=dict)

    def hash_of(self, node: str) -> KeyHash:
        """The hash function of a node's keys: those of slices and of groupings are in order of
        slots."""
        return hash_of_keys(self.nodes[node].computation if node in self.nodes else None)

    def makers(self, node: str) -> dict[str, str]:
        """The streams that nodes chained behind a node make in its shards, each with the node that
        makes it."""
        found: dict[str, str] = {}
        for name in self.chained:
            if self.nodes[name].kind is NodeKind.SINK:
                continue
            above = name
            while above in self.chained and (above == name or above != node):
                above = self.chained[above]
            if above == node:
                found |= dict.fromkeys(self.nodes[name].outputs, name)
        return found

    def sink_behind(self, node: str) -> SinkSpec | None:
        """The sink at the end of the chain behind a source, if it has one."""
        for name in self.chained:
            above = name
            while above in self.chained:
                above = self.chained[above]
            if above == node and (sink := self.nodes[name].sink) is not None:
                return sink
        return None

    def grain(self, node: str) -> int:
        """The number of which the edges of a node's key ranges are multiples: slots are never
        cut."""
        return 1 if self.hash_of(node) is key_hash else WIDTH

    def circle(self, node: str) -> frozenset[str]:
        """The nodes on a path from ``node`` back to itself; with ``node`` when it consumes its own
        output."""
        down = {name: self._consumers_of(name) for name in self.nodes}
        reached = _closure(down, node)
        return frozenset(name for name in reached if node in _closure(down, name))

    def roots(self, node: str) -> frozenset[str]:
        """The sources whose records can reach ``node``; a source has none."""
        above = _closure({name: set(feeders) for name, feeders in self.feeders.items()}, node)
        return frozenset(name for name in above if self.nodes[name].kind is NodeKind.SOURCE)

    def fellows(self, source: str) -> frozenset[str]:
        """The sources whose records some computation takes together with those of ``source``, or
        with streams made of them."""
        meet: set[str] = set()
        for node in self.nodes.values():
            if node.kind is NodeKind.COMPUTATION and source in (roots := self.roots(node.name)):
                meet |= roots
        return frozenset(meet - {source})

    def read_first(self, node: str) -> frozenset[str]:
        """The sources of tables without times that must have been read before ``node`` may go on:
        for an enrichment the one that it waits for; for a source those that its records are
        enriched with further down. Sources whose tables would wait for each other wait for none of
        them."""
        if self.nodes[node].kind is not NodeKind.SOURCE:
            table = self._table_of(node)
            return frozenset({table} if table else ())
        waits: dict[str, set[str]] = {name: set() for name in self.nodes}
        for name in self.nodes:
            if table := self._table_of(name):
                for source in self._enriched(name):
                    waits[source].add(table)
        return frozenset(
            table for table in waits[node] if node not in _closure(waits, table) | {table}
        )

    def _table_of(self, node: str) -> str:
        """The source of the table without times that a node enriches with; "" for none."""
        computation = self.nodes[node].computation
        work = None if computation is None else computation.work
        return f"source.{work.stream}" if isinstance(work, EnrichSpec) and work.timeless else ""

    def _enriched(self, node: str) -> frozenset[str]:
        """The sources of the records to which an enrichment adds the rows of a table. Rows that
        were added to them before do not count: they wait in state, and do not become records."""
        found, seen, waiting = set(), {node}, [node]
        while waiting:
            name = waiting.pop()
            table = self._table_of(name)
            for feeder in set(self.feeders[name]) - {table} - seen:
                seen.add(feeder)
                waiting.append(feeder)
                if self.nodes[feeder].kind is NodeKind.SOURCE:
                    found.add(feeder)
        return frozenset(found)

    def depths(self) -> dict[str, int]:
        """The number of nodes on the longest path to each node. The nodes of a cycle count as
        one."""
        feeders = {name: set(names) for name, names in self.feeders.items()}
        above = {name: _closure(feeders, name) for name in self.nodes}
        depths: dict[str, int] = {}
        # what is above a node has less above it
        for name in sorted(self.nodes, key=lambda name: len(above[name])):
            depths[name] = max(
                (depths[up] + 1 for up in above[name] if name not in above[up]), default=0
            )
        return depths

    def on_error(self, node: str) -> OnError:
        """The policy for failures of a node."""
        spec = self.nodes[node].stream or self.nodes[node].computation
        return SHARE if spec is None else spec.on_error

    def shards(self, node: str) -> int | None:
        """The number of shards that a node requests (None: the default). A sink has as many as the
        computation that feeds it, so that results with an unchanged key stay on the worker."""
        feeders = self.feeders[node]
        if self.nodes[node].kind is NodeKind.SINK and len(feeders) == 1:
            return self.shards(feeders[0])
        computation = self.nodes[node].computation
        return None if computation is None else computation.shards

    def _consumers_of(self, name: str) -> set[str]:
        streams = set(self.nodes[name].outputs) - {DEAD_LETTERS}
        return {consumer for stream in streams for consumer in self.consumers.get(stream, ())}


def _closure(down: dict[str, set[str]], start: str) -> set[str]:
    """Everything that can be reached from ``start`` in one step or more."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in down[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def build_graph(spec: PipelineSpec) -> Graph:
    """The nodes and edges of a valid pipeline. Every node may produce dead letters; these do not
    carry watermarks back into the graph unless a node consumes the stream."""
    nodes: dict[str, Node] = {}
    for stream in spec.streams:
        if stream.source is not None:
            name = f"source.{stream.name}"
            nodes[name] = Node(
                name, NodeKind.SOURCE, (), (stream.name, DEAD_LETTERS), stream=stream
            )
    for comp in spec.computations:
        side = comp.late_side
        outputs = (*comp.outputs, *((side,) if side else ()), DEAD_LETTERS)
        nodes[comp.name] = Node(
            comp.name, NodeKind.COMPUTATION, comp.inputs, outputs, computation=comp
        )
    for sink in spec.sinks:
        name = f"sink.{sink.stream}"
        refuses = sink.may_refuse or sink.stream in spec.scales
        letters = (DEAD_LETTERS,) if refuses and sink.stream != DEAD_LETTERS else ()
        nodes[name] = Node(
            name, NodeKind.SINK, (InputSpec(sink.stream, sink.key),), letters, sink=sink
        )
    consumers: dict[str, list[str]] = {}
    for node in nodes.values():
        for node_input in node.inputs:
            consumers.setdefault(node_input.stream, []).append(node.name)
    feeders = {
        name: tuple(
            feeder.name
            for feeder in nodes.values()
            # Records that a sink refuses may reach a computation that feeds that sink: to wait for
            # them would stop event time.
            if not (feeder.kind is NodeKind.SINK and node.kind is NodeKind.COMPUTATION)
            and feeder.name != name
            and any(each.stream in feeder.outputs for each in node.inputs)
        )
        for name, node in nodes.items()
    }
    return Graph(nodes, {stream: tuple(names) for stream, names in consumers.items()}, feeders)


def runs_user_code(computation: ComputationSpec | None) -> bool:
    """Whether the user's functions or classes get the values of records, and may change them."""
    if computation is None:
        return False
    work = computation.work
    stepped = isinstance(work, StepsSpec) and any(step.function for step in work.steps)
    return stepped or computation.called is not None


def takes_retractions(computation: ComputationSpec, spec: PipelineSpec) -> bool:
    """True when a record that the computation consumes may take back an earlier one."""
    retracting = retracting_streams(spec)
    return any(each.stream in retracting for each in computation.inputs)


def takes_back(computation: ComputationSpec, spec: PipelineSpec) -> bool:
    """True when the results of the computation may have to be taken back for the sake of its input.
    Of an enrichment only the enriched input counts: the other takes back versions."""
    return _is_passed_on(computation, retracting_streams(spec))


def _is_passed_on(computation: ComputationSpec, retracting: Container[str]) -> bool:
    work = computation.work
    versions = work.stream if isinstance(work, EnrichSpec) else ""
    return any(each.stream in retracting and each.stream != versions for each in computation.inputs)


def retracting_streams(spec: PipelineSpec) -> frozenset[str]:
    """Streams that may carry retractions: the streams of sources of change events and of retracting
    windows and of first rows, of joins whose rows may lose or find their only partner, and the
    streams that pass retractions on: steps, branches, joins without a window, or whose windows fire
    again, enrichments and the late records of windows."""
    retracting = {stream.name for stream in spec.streams if stream.takes_back}
    before = -1
    while len(retracting) > before:
        before = len(retracting)
        for computation in spec.computations:
            passed_on = _is_passed_on(computation, retracting)
            steps = passed_on and isinstance(
                computation.work, StepsSpec | BranchesSpec | RegularJoinSpec | EnrichSpec
            )
            work = computation.work
            again = (
                work.takes_back
                if isinstance(work, RegularJoinSpec | JoinSpec)
                else computation.firing.accumulation == Accumulation.RETRACTING.value
            )
            again = again or (passed_on and isinstance(work, JoinSpec) and work.changes)
            retracts = again or isinstance(work, TableSpec | TopSpec)
            if retracts or steps:
                retracting.update(computation.outputs)
            side = computation.late_side
            if side and passed_on:
                retracting.add(side)
    return frozenset(retracting)


Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeView:
    """The state of one node: its watermark in µs, whether all ranges have reported, the holder of
    the watermark, and its counters; the tallies of recent calls, if some failed, and the first
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
