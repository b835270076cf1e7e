"""The numbers of a run: a pure function of the durable counters that the injector collects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millwheel.core.model.failures import kinds_in, replayed_in, without_kinds
from millwheel.core.pipeline.graph import ClusterView, Counters, Graph, NodeKind
from millwheel.core.pipeline.spec import DEAD_LETTERS

_DUPLICATES = "duplicates."
_QUANTILES = ("p50", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run. All counters are exact: they are part of the commits they count.
    ``reasons`` are dead letters by the node that wrote them and by the failed call; ``replayed``
    counts those that were tried again."""

    records_in: int
    records_out: int
    duplicates: int
    late: int
    dead_letters: int
    seconds: float
    rate: float
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Counters] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, Counters] = field(default_factory=dict)
    replayed: int = 0

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values, ready for JSON."""
        return asdict(self)


def summarize(
    graph: Graph, view: ClusterView, seconds: float, restarts: Mapping[str, int]
) -> Summary:
    """Add up the counters. ``seconds`` is the working time of the workers."""
    all_counters = {
        name: view.nodes[name].counters if name in view.nodes else {} for name in graph.nodes
    }
    counters = {name: without_kinds(each) for name, each in all_counters.items()}
    records_in = total(graph, counters, "records_in", NodeKind.SOURCE)
    return Summary(
        records_in=records_in,
        records_out=_records_out(graph, counters),
        duplicates=_duplicates(counters),
        late=total(graph, counters, "late"),
        dead_letters=total(graph, counters, "dead_letters"),
        seconds=round(seconds, 3),
        rate=round(records_in / seconds, 1) if seconds > 0 else 0.0,
        latency_ms={
            name: round(value, 3) for name, value in zip(_QUANTILES, view.latency_ms, strict=False)
        },
        outputs=outputs(graph),
        nodes=counters,
        restarts=dict(restarts),
        replayed=sum(map(replayed_in, all_counters.values())),
        reasons={name: kinds for name, each in all_counters.items() if (kinds := kinds_in(each))},
    )


def reason_texts(reasons: Mapping[str, Counters]) -> list[str]:
    """Dead letters by node and kind in words, the most frequent first."""
    flat = [(count, node, kind) for node, kinds in reasons.items() for kind, count in kinds.items()]
    return [
        f"{node}: {kind} {count:,}"
        for count, node, kind in sorted(flat, key=lambda each: (-each[0], each[1:]))
    ]


def total(
    graph: Graph, counters: Mapping[str, Counters], name: str, kind: NodeKind | None = None
) -> int:
    """A counter summed over the nodes (of one kind)."""
    names = [node.name for node in graph.nodes.values() if kind is None or node.kind is kind]
    return sum(counters.get(node, {}).get(name, 0) for node in names)


def outputs(graph: Graph) -> dict[str, str]:
    """Where each sink writes: its path, or its kind when it has none."""
    sinks = [node.sink for node in graph.nodes.values() if node.sink is not None]
    return {sink.stream: str(sink.options.get("path", sink.kind)) for sink in sinks}


def _records_out(graph: Graph, counters: Mapping[str, Counters]) -> int:
    names = [
        n.name for n in graph.nodes.values() if n.sink is not None and n.sink.stream != DEAD_LETTERS
    ]
    return sum(counters[name].get("records_out", 0) for name in names)


def _duplicates(counters: Mapping[str, Counters]) -> int:
    """The dropped duplicates. Every consumer of a stream drops the same ones, so one consumer's
    number is that of the stream."""
    by_stream: dict[str, int] = {}
    for node_counters in counters.values():
        for name, count in node_counters.items():
            if name.startswith(_DUPLICATES):
                by_stream[name] = max(by_stream.get(name, 0), count)
    return sum(by_stream.values())
