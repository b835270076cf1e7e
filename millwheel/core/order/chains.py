"""Chains: computations without state that run in the shards of the source or computation whose
records they take, in its commits. Their own shards get only what is sent to them alone, such as
retried dead letters. So does a sink of files at the end of a chain behind a source."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from millwheel.core.pipeline.graph import Graph, Node, NodeKind, runs_user_code
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import BranchesSpec, StepsSpec


@dataclass(frozen=True, slots=True)
class Chains:
    """``before``: for each chained node, the one that it stands behind. ``why_not``: why a node is
    not chained, as a phrase, for each other node without state that takes records under the key
    that they have, and each other sink of files at the end of a chain behind a source."""

    before: Mapping[str, str] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)

    def head(self, node: str) -> str:
        """The node in whose shards a node runs: the first of its chain, or itself."""
        while node in self.before:
            node = self.before[node]
        return node


def chains_of(graph: Graph, spec: PipelineSpec, labelled: Container[str]) -> Chains:
    """The chains of a pipeline. ``labelled`` are the computations that use labels."""
    before: dict[str, str] = {}
    why_not: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for name, node in graph.nodes.items():
        makers = {each.stream: _makers(each, graph) for each in node.inputs}
        first = next((maker for found in makers.values() for maker in found), None)
        if not is_stateless(node.computation) or first is None:
            continue
        if first.computation is None and node.inputs[0].key.kind is not KeyKind.RECORD:
            continue  # its records come under another key
        why = _why_not(node, first, makers, graph, spec, labelled)
        if why:
            why_not[name] = why
        elif first.computation is None:
            readers.setdefault(first.name, []).append(name)
        else:
            before[name] = first.name
    for source, names in readers.items():
        # Records are committed with their results, or sent as they are read, and never both.
        # And a call that does not return must accuse one computation.
        if graph.consumers[graph.nodes[source].outputs[0]] == (names[0],):
            before[names[0]] = source
        else:
            why_not |= dict.fromkeys(names, "others take the records that are read, too")
    for name, node in graph.nodes.items():
        if node.sink is None or node.sink.kind != "files":
            continue  # other writers hold up the reading of a source, or name what they write
        ends = _ends(node, before, graph)
        if ends and (why := _why_not_sink(node.sink, ends, graph)):
            why_not[name] = why
        elif ends:
            before[name] = ends[0]
    return Chains(before, why_not)


def _ends(sink: Node, before: Mapping[str, str], graph: Graph) -> list[str]:
    """The chain behind a source, from its last node on, that alone fills the stream of a sink;
    nothing where there is none."""
    makers = _makers(sink.inputs[0], graph)
    chain = [makers[0].name] if len(makers) == 1 else []
    while chain and chain[-1] in before:
        chain.append(before[chain[-1]])
    return chain if chain and graph.nodes[chain[-1]].kind is NodeKind.SOURCE else []


def _why_not_sink(sink: SinkSpec, chain: list[str], graph: Graph) -> str:
    """Why the batches of a sink are not made in the shards of the source with this chain; "" if
    they are."""
    streams = {each for name in chain for each in graph.nodes[name].outputs} - {DEAD_LETTERS}
    consumers = {taker for each in streams for taker in graph.consumers.get(each, ())}
    return (
        f"its mode is {sink.options['mode']}"
        if sink.options.get("mode", "append") != "append"
        else "it has a key of its own"
        if sink.key.kind is not KeyKind.RECORD
        else "others take results of the chain, too"  # they would wait until its batch is full
        if consumers - {*chain, f"sink.{sink.stream}"}
        else ""
    )


def is_stateless(computation: ComputationSpec | None) -> bool:
    """Whether a computation consists of steps or branches."""
    return computation is not None and isinstance(computation.work, StepsSpec | BranchesSpec)


def _makers(node_input: InputSpec, graph: Graph) -> list[Node]:
    if node_input.stream == DEAD_LETTERS:
        return []
    return [node for node in graph.nodes.values() if node_input.stream in node.outputs]


def _why_not(
    node: Node,
    maker: Node,
    makers: Mapping[str, list[Node]],
    graph: Graph,
    spec: PipelineSpec,
    labelled: Container[str],
) -> str:
    """Why a node does not run in the shards of its maker; "" if it does."""
    if len(node.inputs) > 1:
        return f"it takes {len(node.inputs)} streams"
    (node_input,), (found,) = node.inputs, makers.values()
    if len(found) > 1:
        return f"{' and '.join(each.name for each in found)} fill {node_input.stream}"
    if node_input.key.kind is not KeyKind.RECORD:
        return "it has a key of its own"
    if spec.tracing is not None:
        return "records are traced"
    first, second = maker.computation, node.computation
    assert second is not None
    unread = _why_not_read(maker.stream) if first is None else ""
    return (
        unread
        or _why_apart(first, second)
        or (
            f"functions of your own may be called for a {'result' if first else 'record'}"
            if spec.functions and not is_stateless(first)
            else "timers behind it depend on the position of each record"
            if maker.name in labelled or second.name in labelled
            else "its records come back to it"
            if graph.circle(maker.name) or graph.circle(second.name)
            else ""
        )
    )


def _why_not_read(stream: StreamSpec | None) -> str:
    """Why nothing is chained behind the source of a stream; "" where something may be."""
    assert stream is not None
    assert stream.source is not None
    if stream.source.kind == "injection":
        return "records are injected one by one"
    return "copies are recognized by the ids of records" if stream.id else ""


def _why_apart(first: ComputationSpec | None, second: ComputationSpec) -> str:
    """The setting that keeps a computation apart from another, or from a source; "" for none."""
    if Productions.WEAK in ((first or second).productions, second.productions):
        return "weak productions have ids"
    if (first or second).ordered or second.ordered:
        return "records wait for their order"
    if second.delivery is not (first.delivery if first else Delivery.EXACTLY_ONCE):
        return "it has a guarantee of its own"
    if second.shards not in (None, first.shards if first else None):
        return "it has shards of its own"
    if runs_user_code(second):
        return "code of your own takes each record"
    return ""
