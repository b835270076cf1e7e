"""Which records carry labels, the watermarks at their positions: those that come to a callback
whose timers depend on them, from one source by one way. docs/design/watermarks.md has the
argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from millwheel.core.pipeline.graph import Graph, Node, NodeKind
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, Productions
from millwheel.core.pipeline.work import (
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    OverSpec,
    SlicesSpec,
    TopSpec,
    WindowedSpec,
)

_OWN_ORDER = ("injection", "http")
"""Sources whose records come in the order in which clients send them."""


@dataclass(frozen=True, slots=True)
class LabelUse:
    """A computation's use of labels: it ``takes`` those of its records, and ``follows`` them,
    because they are the watermark of all its input; it ``gives`` labels to its productions."""

    takes: bool = False
    follows: bool = False
    gives: bool = False


NO_USE = LabelUse()


@dataclass(frozen=True, slots=True)
class Labels:
    """The use of labels in a pipeline, by computation, and the source streams whose records have
    them."""

    uses: dict[str, LabelUse] = field(default_factory=dict)
    streams: frozenset[str] = frozenset()

    @property
    def consumers(self) -> frozenset[str]:
        """The computations that take labels."""
        return frozenset(name for name, use in self.uses.items() if use.takes)

    @property
    def users(self) -> frozenset[str]:
        """The computations that do anything with labels."""
        return frozenset(name for name, use in self.uses.items() if use != NO_USE)

    def of(self, node: str) -> LabelUse:
        """A node's use of labels."""
        return self.uses.get(node, NO_USE)


class CallbackCode(Protocol):
    """The properties of callbacks that follow from their code."""

    def sets_timers(self, spec: ComputationSpec) -> bool:
        """Whether the result of a call may depend on which timers came before it."""

    def takes_batches(self, spec: ComputationSpec) -> bool:
        """Whether a call may have several records."""


def labels_of(graph: Graph, code: CallbackCode) -> Labels:
    """The nodes that take labels, and those that give them."""
    return _Search(graph, code).labels()


class _Search:
    def __init__(self, graph: Graph, code: CallbackCode) -> None:
        self._graph = graph
        self._code = code

    def labels(self) -> Labels:
        takes = {
            name
            for name in self._graph.nodes
            if self._gets(name, ()) and self._needs_labels(name, ())
        }
        uses = {
            name: self._use(name, takes)
            for name, node in self._graph.nodes.items()
            if node.computation is not None
        }
        origins = {name: self._origin(self._graph.nodes[name]) for name in takes}
        streams = {
            node.stream.name
            for node in origins.values()
            if node is not None and node.stream is not None
        }
        return Labels(uses, frozenset(streams))

    def _use(self, name: str, takes: set[str]) -> LabelUse:
        node = self._graph.nodes[name]
        origin = self._origin(node) if name in takes else None
        gives = any(consumer in takes for consumer in self._consumers(node))
        return LabelUse(name in takes, origin is not None and origin.kind is NodeKind.SOURCE, gives)

    def _gets(self, name: str, above: tuple[str, ...]) -> bool:
        """Whether the records of a computation have labels."""
        node = self._graph.nodes[name]
        origin = self._origin(node)
        if (
            name in above
            or node.computation is None
            or origin is None
            or not self._in_order(node.computation)
        ):
            return False
        if origin.stream is not None:
            return origin.stream.source is not None and origin.stream.source.kind not in _OWN_ORDER
        return _is_strong(node) and _is_strong(origin) and self._gets(origin.name, (*above, name))

    def _in_order(self, spec: ComputationSpec) -> bool:
        """Whether a computation takes its records one by one as they come, so that each production
        comes from one call. Records that wait for their order have waited for the watermark."""
        together = WindowedSpec | SlicesSpec | DictionarySpec | EnrichSpec
        plain = not isinstance(spec.work, together | IntervalJoinSpec | OverSpec | TopSpec)
        return plain and not spec.ordered and not self._code.takes_batches(spec)

    def _needs_labels(self, name: str, above: tuple[str, ...]) -> bool:
        """Whether a computation that gets labels needs them, or one behind it does."""
        node = self._graph.nodes[name]
        if node.computation is not None and self._code.sets_timers(node.computation):
            return True
        return any(
            each not in above and self._gets(each, ()) and self._needs_labels(each, (*above, name))
            for each in self._consumers(node)
        )

    def _consumers(self, node: Node) -> set[str]:
        streams = [stream for stream in node.outputs if stream != DEAD_LETTERS]
        return {name for stream in streams for name in self._graph.consumers.get(stream, ())}

    def _origin(self, node: Node) -> Node | None:
        """The only node that feeds a computation; None where several do."""
        if len(node.inputs) != 1:
            return None
        feeders = [
            each for each in self._graph.nodes.values() if node.inputs[0].stream in each.outputs
        ]
        return feeders[0] if len(feeders) == 1 else None


def _is_strong(node: Node) -> bool:
    """Whether a computation's productions are durable before they are sent. Records that were put
    aside in a bundle that a crash discards would else be sent again under another name."""
    return node.computation is not None and node.computation.productions is Productions.STRONG
