"""The effects of the order of arrival: which computations may have results that differ from run to
run, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millwheel.core.order.labels import CallbackCode, labels_of
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, StreamSpec
from millwheel.core.pipeline.work import (
    AggregationSpec,
    CallbackSpec,
    DeduplicateSpec,
    EnrichSpec,
    LookupSpec,
    RegularJoinSpec,
    TopSpec,
    WindowCallbackSpec,
    WindowedSpec,
)

_SENT = ("injection", "http")
_ONE_BY_DEFAULT = ("generator", "postgres")
"""Sources with one partition, unless their options name a number."""
_PATTERN = frozenset("*?[")
_SEES_ORDER = frozenset({"collect", "first", "last"})
"""Aggregates whose result depends on the order of records, at least among those of one time."""
_BY_WATERMARK = frozenset({"default", "never", "after_watermark"})
CURE = "order_by: timestamp makes it that of the input"
VERSIONS = "it emits what has changed with each bundle"
"""The reason that is about the number of versions alone: the last ones depend on the input only."""


def several_partitions(stream: StreamSpec) -> str:
    """Why the records of a source have no order of their own, in words; "" where it has one
    partition."""
    assert stream.source is not None
    kind, options = stream.source.kind, stream.source.options
    if kind in _SENT:
        return f"records of {stream.name} are sent in"
    if kind in _ONE_BY_DEFAULT:
        return (
            f"{stream.name} has several partitions" if int(options.get("partitions", 1)) > 1 else ""
        )
    if kind == "files":
        paths = options.get("path", "")
        names = [paths] if isinstance(paths, str) else list(paths)
        return (
            ""
            if len(names) == 1 and _is_file(str(names[0]))
            else f"{stream.name} may have several files"
        )
    return f"{stream.name} may have several partitions"


def _is_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return bool(name) and not _PATTERN & set(path) and ("://" not in path or "." in name)


def by_arrival(graph: Graph, code: CallbackCode) -> dict[str, str]:
    """The computations whose results may depend on the order in which records arrive, or on how
    many come together, each with the reason. Callbacks count as if they saw the order of the
    records of a key."""
    return _Search(graph, code).reasons()


class _Search:
    def __init__(self, graph: Graph, code: CallbackCode) -> None:
        self._graph = graph
        self._code = code
        self._labels = labels_of(graph, code)

    def reasons(self) -> dict[str, str]:
        reasons = {
            name: self._why(node, node.computation) for name, node in self._graph.nodes.items()
        }
        return {name: why for name, why in reasons.items() if why}

    def _why(self, node: Node, spec: ComputationSpec | None) -> str:
        if spec is None or spec.ordered:
            return ""
        match spec.work:
            case WindowedSpec() if spec.is_change_log:
                return VERSIONS
            case WindowedSpec() as work:
                return _own_firing(work) or (self._meets(node) if _sees_order(work) else "")
            case LookupSpec():
                return "another system answers"
            case EnrichSpec(waits=waits):
                return "" if waits else "a record finds what has arrived by then"
            case CallbackSpec() if self._code.takes_batches(spec):
                return "process_batch gets what has come together"
            case CallbackSpec():
                return self._meets(node) or self._races_timers(node, spec)
            case TopSpec():
                return VERSIONS
            case RegularJoinSpec(takes_back=True):
                return VERSIONS
            case DeduplicateSpec():
                return self._meets(node)
        return ""

    def _races_timers(self, node: Node, spec: ComputationSpec) -> str:
        if not self._code.sets_timers(spec) or self._labels.of(node.name).takes:
            return ""
        return (
            f"its timers come when the watermark does, and {node.inputs[0].stream} when it is ready"
        )

    def _meets(self, node: Node) -> str:
        """Why the records of a key may come from several senders, whose order is that of arrival;
        "" if they do not."""
        if len(node.inputs) > 1:
            return f"its records come by {len(node.inputs)} streams"
        node_input = node.inputs[0]
        feeders = [each for each in self._graph.nodes.values() if node_input.stream in each.outputs]
        if len(feeders) != 1 or node_input.stream == DEAD_LETTERS:
            return f"several computations fill {node_input.stream}"
        feeder = feeders[0]
        if feeder.stream is not None:
            return several_partitions(feeder.stream)
        spec = feeder.computation
        if feeder.inputs and not _is_own(node_input.key, feeder):
            return f"several keys of {feeder.name} may meet in one"
        if spec is not None and (
            spec.ordered or (spec.windowed is not None and not _own_firing(spec.windowed))
        ):
            return ""  # the results of a key come in the order of event time
        return self._meets(feeder)


def _is_own(key: KeySpec, feeder: Node) -> bool:
    """Whether a consumer keys records as their producer did."""
    own = feeder.inputs[0].key
    # A key without a name is the field "key" of the results of a window.
    unnamed = (
        feeder.computation is not None
        and feeder.computation.windowed is not None
        and key.names == ("key",)
    )
    return (
        key.kind is KeyKind.RECORD
        or (key == own and key.kind is not KeyKind.EXPRESSIONS)  # which read other records there
        or (unnamed and not own.fields)
    )


def _own_firing(work: WindowedSpec) -> str:
    lateness_us, trigger = work.firing.allowed_lateness_us, work.firing.trigger
    if lateness_us or (trigger is not None and not set(_words(trigger)) <= _BY_WATERMARK):
        return "its windows fire not only by the watermark"
    return ""


def _sees_order(work: WindowedSpec) -> bool:
    if work.window.kind == "count" or isinstance(work, WindowCallbackSpec):
        return True
    aggregates = work.aggregates if isinstance(work, AggregationSpec) else ()
    whole = isinstance(work, AggregationSpec) and not aggregates
    return whole or any(each.function in _SEES_ORDER for each in aggregates)


def _words(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield str(name)
            yield from _words(inner)
    elif isinstance(tree, list | tuple):
        for inner in tree:
            yield from _words(inner)


def reasons_of(node: str, graph: Graph, reasons: Mapping[str, str]) -> tuple[str, ...]:
    """The computations, among a node and all that feed it, whose results may depend on the order of
    arrival, each with the reason."""
    above, waiting = {node}, [node]
    while waiting:
        fresh = [feeder for feeder in graph.feeders[waiting.pop()] if feeder not in above]
        above.update(fresh)
        waiting += fresh
    return tuple(
        f"{name}: {reasons[name]}" for name in graph.nodes if name in above and name in reasons
    )
