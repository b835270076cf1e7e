"""The live state of a run on the page, as values: figures of nodes, edges, shards and workers.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.launch.progress.divided_nodes import DividedStanding
from millwheel.launch.progress.run_standing import HeldBy, NodeStanding, RunStanding, WorkerStanding
from millwheel.tools.ui.layout import Drawing
from millwheel.tools.ui.readings import ShardRate, ShardReading

_NOTHING, _STILL = ShardReading(), ShardRate()


class LiveShard(msgspec.Struct, frozen=True):
    """A shard: its owner ("": none) and slot (-1: none), its input in records/s, ``busy`` as a
    share of one core, waiting records, the used share of its credit, and bytes of state."""

    shard: str
    owner: str
    slot: int
    rate: float
    busy: float
    inbox: int
    credit: float
    state_bytes: int


class LiveNode(msgspec.Struct, frozen=True):
    """A node. ``state`` is starting, flowing, idle or drained; ``behind_s`` is the distance of its
    watermark to the furthest source (s of event time). ``held`` is the holder of the watermark,
    with the cause; ``pressure`` is the used share of the credit of its fullest outgoing lane: at 1
    the node waits for its consumers."""

    name: str
    state: str
    watermark: str | None
    behind_s: float | None
    held: HeldBy | None
    records_in: int
    records_out: int
    rate_in: float
    rate_out: float
    late: int
    dead_letters: dict[str, int]
    busy: float
    pressure: float
    state_bytes: int
    unowned: int
    shards: tuple[LiveShard, ...]


class LiveEdge(msgspec.Struct, frozen=True):
    """A stream between two nodes. ``rate`` is records/s (None where a node has several inputs and
    outputs), ``lag_s`` the distance of the consumer's watermark behind the producer's."""

    source: str
    target: str
    stream: str
    rate: float | None
    lag_s: float | None
    pressure: float


class LiveRun(msgspec.Struct, frozen=True):
    """A run at ``at_ms`` (wall clock). ``state`` is starting, running, complete or stopped;
    ``troubles`` lists anything stuck, with its cause; ``problem`` is the reason why the other
    values may be old."""

    pipeline: str
    root: str
    state: str
    at_ms: int
    records_in: int = 0
    rate: float = 0.0
    dead_letters: int = 0
    troubles: tuple[str, ...] = ()
    nodes: tuple[LiveNode, ...] = ()
    edges: tuple[LiveEdge, ...] = ()
    workers: tuple[WorkerStanding, ...] = ()
    progress: str = ""
    problem: str = ""
    divided: tuple[DividedStanding, ...] = ()


def live_run(
    standing: RunStanding,
    drawing: Drawing,
    tables: Mapping[NodeName, RangeTable],
    readings: Mapping[str, Mapping[str, ShardReading]],
    rates: Mapping[str, ShardRate],
    at_ms: int,
    progress: str,
) -> LiveRun:
    """The live state from all its parts. ``readings`` are by worker and shard, ``rates`` by
    shard."""
    slots = {worker.worker: worker.slot for worker in standing.workers}
    shards = {
        node.node: _shards(tables.get(NodeName(node.node)), slots, readings, rates)
        for node in standing.nodes
    }
    nodes = [
        _node(node, shards[node.node], rates)
        for node in standing.nodes
        if node.node != f"sink.{DEAD_LETTERS}"
    ]
    by_name = {node.node: node for node in standing.nodes}
    sources = [node for node in nodes if by_name[node.name].kind == "source"]
    return LiveRun(
        standing.pipeline,
        standing.root,
        "running" if any(node.state != "starting" for node in nodes) else "starting",
        at_ms,
        standing.records_in,
        sum(node.rate_in for node in sources),
        standing.dead_letters,
        standing.troubles,
        tuple(nodes),
        _edges(drawing, {node.name: node for node in nodes}, by_name),
        standing.workers,
        progress,
        divided=standing.divided,
    )


def _shards(
    table: RangeTable | None,
    slots: Mapping[str, int],
    readings: Mapping[str, Mapping[str, ShardReading]],
    rates: Mapping[str, ShardRate],
) -> tuple[LiveShard, ...]:
    shards = []
    for entry in () if table is None else table.shards:
        reading = readings.get(entry.owner, {}).get(entry.shard, _NOTHING)
        rate = rates.get(entry.shard, _STILL)
        alive = entry.owner in slots
        shards.append(
            LiveShard(
                shard=entry.shard,
                owner=entry.owner if alive else "",
                slot=slots.get(entry.owner, -1),
                rate=rate.records_in,
                busy=rate.busy,
                inbox=int(reading.inbox),
                credit=max(reading.credit, reading.congested),
                state_bytes=int(reading.state_bytes),
            )
        )
    return tuple(shards)


def _node(
    node: NodeStanding, shards: Sequence[LiveShard], rates: Mapping[str, ShardRate]
) -> LiveNode:
    shard_rates = [rates.get(shard.shard, _STILL) for shard in shards]
    return LiveNode(
        name=node.node,
        state=node.state,
        watermark=node.watermark,
        behind_s=node.behind_s,
        held=node.held_by,
        records_in=node.counters.get("records_in", 0),
        records_out=node.counters.get("records_out", 0),
        rate_in=sum(rate.records_in for rate in shard_rates),
        rate_out=sum(rate.records_out for rate in shard_rates),
        late=node.counters.get("late", 0),
        dead_letters=node.dead_letters,
        busy=sum(rate.busy for rate in shard_rates),
        pressure=max((shard.credit for shard in shards), default=0.0),
        state_bytes=sum(shard.state_bytes for shard in shards),
        unowned=node.unowned,
        shards=tuple(shards),
    )


def _edges(
    drawing: Drawing, nodes: Mapping[str, LiveNode], standing: Mapping[str, NodeStanding]
) -> tuple[LiveEdge, ...]:
    inputs = [edge.target for edge in drawing.edges]
    outputs = [edge.source for edge in drawing.edges]
    edges = []
    for edge in drawing.edges:
        source, target = nodes.get(edge.source), nodes.get(edge.target)
        if source is None or target is None:
            continue
        rate = None
        if inputs.count(edge.target) == 1:  # its only input
            rate = target.rate_in
        elif outputs.count(edge.source) == 1:
            rate = source.rate_out
        lag_s = _lag_s(standing[edge.source].watermark_us, standing[edge.target].watermark_us)
        edges.append(LiveEdge(edge.source, edge.target, edge.stream, rate, lag_s, source.pressure))
    return tuple(edges)


def _lag_s(before_us: int, after_us: int) -> float | None:
    if not (MIN_TIME < before_us < IDLE_TIME and MIN_TIME < after_us < IDLE_TIME):
        return None
    return max(0, before_us - after_us) / SECOND
