"""The state of a run as values, which ``millwheel status`` prints; with ``--json`` in this shape.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

import msgspec

from millwheel.adapters.waits import Waiting
from millwheel.core.model.failures import kinds_in, without_kinds
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND, duration_text
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeKind, NodeView
from millwheel.launch.progress.divided_nodes import DividedStanding
from millwheel.launch.progress.late_hour import LateStream

STEP_S = 1.0
"""A step of a worker that takes longer gets a line: normal steps take milliseconds."""
FULL = 0.9
"""The used share of memory from which on a worker gets a line and, unless with ``--no-balance``, no
more shards."""
_BEHIND_US = 3 * SECOND  # less is usual: sinks make their files visible about once a second
_INPUT = ("input", "input, as published in this run")
_AWAY = re.compile(r"(sink batch \d+, not yet published|rows that are not visible yet): ")
"""The report of a sink whose target is unreachable. While nothing moves, no watermark is behind
another."""
_TIME = re.compile(r"(?<= at )(-?\d{13,19})\b")


class HeldBy(msgspec.Struct, frozen=True):
    """The holder of a node's watermark: ``shard`` of ``node``, which may be far upstream."""

    node: str
    shard: str
    words: str


class NodeStanding(msgspec.Struct, frozen=True):
    """One node. ``state`` is starting, flowing, idle or drained; ``watermark`` is a time only while
    it flows, and ``behind_s`` its distance to the furthest source. ``dead_letters`` are counted by
    reason."""

    node: str
    kind: str
    state: str
    watermark: str | None
    watermark_us: int
    behind_s: float | None
    held_by: HeldBy | None
    shards: int
    unowned: int
    counters: dict[str, int]
    dead_letters: dict[str, int]


class WorkerStanding(msgspec.Struct, frozen=True):
    """One worker. ``step_s`` is the time that its running step has taken so far, ``where`` the
    running line of your code, and ``calls`` the subjects of the running calls. ``answers`` is false
    if it could not be asked. ``host``, ``rack`` and ``weight`` are stated by its machine,
    ``slowness`` how many times the time of the others it takes (1 with ``--no-balance``), and
    ``memory`` the used share of its memory (0: unknown)."""

    worker: str
    slot: int
    address: str
    shards: int
    answers: bool
    step_s: float = 0.0
    where: str = ""
    calls: tuple[str, ...] = ()
    weight: float = 1.0
    slowness: float = 1.0
    memory: float = 0.0
    host: str = ""
    rack: str = ""


class ExposedHost(msgspec.Struct, frozen=True):
    """A host whose loss would leave ``missing`` seats empty: ``serving`` workers own shards there,
    and only ``spares`` of the spares are on other hosts."""

    host: str
    serving: int
    spares: int
    missing: int


class RunStanding(msgspec.Struct, frozen=True):
    """The whole run. ``troubles`` are sentences about everything stuck, with the cause, and about
    hosts that may not die; empty when all is well. ``exposures`` are there only of runs with
    spares, the worst first. ``waits`` are the waits of processes of the run that have lasted for
    ten seconds; ``deaths`` are processes that have failed within two minutes, with their last
    words. ``divided``: the nodes whose keys are divided; ``late``: how many records of each stream
    were late in the last hour."""

    pipeline: str
    root: str
    records_in: int
    dead_letters: int
    nodes: tuple[NodeStanding, ...]
    workers: tuple[WorkerStanding, ...]
    troubles: tuple[str, ...]
    metrics: str = ""
    exposures: tuple[ExposedHost, ...] = ()
    waits: tuple[Waiting, ...] = ()
    deaths: tuple[str, ...] = ()
    divided: tuple[DividedStanding, ...] = ()
    late: tuple[LateStream, ...] = ()


def node_standings(
    graph: Graph, view: ClusterView, tables: Mapping[NodeName, RangeTable], alive: Sequence[str]
) -> tuple[NodeStanding, ...]:
    """All nodes in the order of the graph."""
    front_us = _front(graph, view)
    return tuple(
        _node(graph, view, name, front_us, tables.get(NodeName(name)), alive)
        for name in graph.nodes
    )


def _front(graph: Graph, view: ClusterView) -> int | None:
    sources = [
        name
        for name, node in graph.nodes.items()
        if node.kind is NodeKind.SOURCE and name in view.nodes
    ]
    return max(
        (us for name in sources if _is_time(us := view.nodes[name].watermark_us)), default=None
    )


def _node(
    graph: Graph,
    view: ClusterView,
    name: str,
    front_us: int | None,
    table: RangeTable | None,
    alive: Sequence[str],
) -> NodeStanding:
    node_view = view.nodes.get(name, NodeView(name, MIN_TIME, False, "", {}))
    us = node_view.watermark_us
    timed = _is_time(us)
    entries = () if table is None else table.shards
    return NodeStanding(
        node=name,
        kind=graph.nodes[name].kind.value,
        state=_state(us),
        watermark=watermark_words(us) if timed else None,
        watermark_us=us,
        behind_s=max(0, front_us - us) / SECOND if timed and front_us is not None else None,
        held_by=held_by(graph, view, name) if us < MAX_TIME else None,
        shards=len(entries),
        unowned=sum(entry.owner not in alive for entry in entries),
        counters=dict(sorted(without_kinds(node_view.counters).items())),
        dead_letters=kinds_in(node_view.counters),
    )


def held_by(graph: Graph, view: ClusterView, name: str) -> HeldBy | None:
    """The holder of a node's watermark: the node itself, or, while it waits for input, the holder
    of its feeder that is furthest behind, and so on upstream."""
    seen: set[str] = set()
    while name in view.nodes and name not in seen:
        seen.add(name)
        shard, _, words = view.nodes[name].holder.partition(": ")
        feeders = [feeder for feeder in graph.feeders[name] if feeder in view.nodes]
        if words not in _INPUT or not feeders:
            return HeldBy(name, shard, in_words(words)) if shard else None
        name = min(feeders, key=lambda feeder: view.nodes[feeder].watermark_us)
    return None


def in_words(holder: str) -> str:
    """The holder that a shard reports, with readable times."""
    return _TIME.sub(lambda match: watermark_words(int(match[1])), holder)


def troubles_of(nodes: Sequence[NodeStanding], workers: Sequence[WorkerStanding]) -> Iterator[str]:
    """Everything stuck, with its cause, the gravest first."""
    for worker in workers:
        if not worker.answers:
            yield f"{worker.worker} (slot {worker.slot}) does not answer"
        elif worker.step_s >= STEP_S:
            about = "; ".join(worker.calls) or "no callback of a computation"
            line = f", at {worker.where}" if worker.where else ""
            yield f"{worker.worker} has been in one step for {worker.step_s:.1f} s: {about}{line}"
    for worker in workers:
        if worker.slowness > 1:
            share = (
                f"its weight of {worker.weight:g} counts as {worker.weight / worker.slowness:.2g}"
            )
            yield (
                f"{worker.worker} takes {worker.slowness:.1f} times as long as the others: {share}"
            )
        if worker.memory >= FULL:
            yield f"{worker.worker} has {worker.memory:.0%} of its memory in use"
    for node in nodes:
        if node.unowned:
            yield f"{node.node}: {node.unowned} of {node.shards} shards have no owner"
    listed: set[tuple[str, str]] = set()
    for node in sorted(nodes, key=lambda node: -(node.behind_s or 0)):
        held, behind_us = node.held_by, (node.behind_s or 0) * SECOND
        late = node.state == "flowing" and behind_us > _BEHIND_US
        away = held is not None and held.node == node.node and _AWAY.match(held.words) is not None
        if (
            held is None
            or not (late or away or node.state == "starting")
            or (held.node, held.shard) in listed
        ):
            continue
        listed.add((held.node, held.shard))
        progress = f"is {_rounded(int(behind_us))} behind" if late else "waits for its target"
        if node.state == "starting" and not away:
            progress = "has no watermark yet"
        yield f"{node.node} {progress}, held by {held.shard}: {held.words}"


def exposed(exposures: Sequence[ExposedHost], workers: Sequence[WorkerStanding]) -> Iterator[str]:
    """The host whose loss would be worst, with the remedy. Where all workers are on one host
    nothing covers its loss, and the driver has announced that."""
    if exposures and len({worker.host for worker in workers}) > 1:
        worst = exposures[0]
        more = f"{worst.missing} more spare{'s' if worst.missing > 1 else ''}"
        yield (
            f"the loss of the host {worst.host} would leave {worst.missing} seats empty (workers"
            f" that serve there: {worst.serving}, spares on other hosts: {worst.spares}). Start the"
            f" run with {more} on other hosts, or with --spares auto"
        )


def together(waits: Iterable[Waiting]) -> tuple[Waiting, ...]:
    """The waits of several processes, the longest first: one for each thing that is waited for."""
    by_subject: dict[str, Waiting] = {}
    for wait in sorted(waits, key=lambda wait: -wait.for_s):
        by_subject.setdefault(wait.what, wait)
    return tuple(by_subject.values())


def failing(view: ClusterView) -> Iterator[str]:
    """The failing calls among the recent ones."""
    for node in view.nodes.values():
        for call, tally in node.tallies.items():
            if tally.failed:
                yield (
                    f"{call.judged}: {tally.failed:,} of its last {tally.tried:,} calls failed"
                    f" ({call.what})"
                )


def _rounded(us: int) -> str:
    return duration_text(us - us % SECOND)


def _is_time(watermark_us: int) -> bool:
    return MIN_TIME < watermark_us < IDLE_TIME


def _state(watermark_us: int) -> str:
    if watermark_us == MIN_TIME:
        return "starting"
    if watermark_us == MAX_TIME:
        return "drained"
    return "idle" if watermark_us >= IDLE_TIME else "flowing"


def watermark_words(watermark_us: int) -> str:
    """A watermark in readable form: a time, or the meaning of its extremes."""
    if watermark_us == MIN_TIME:
        return "nothing yet"
    if watermark_us == MAX_TIME:
        return "drained"
    if watermark_us >= IDLE_TIME:
        return "idle"
    try:
        moment = datetime.fromtimestamp(watermark_us / SECOND, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{watermark_us} µs"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
