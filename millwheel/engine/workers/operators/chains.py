"""Runs a chain: the results of a computation are taken at once by those without state that stand
behind it, in the same bundle and commit. Each keeps its own calls, dead letters and counters.

A call that does not return is attributed to the record with which a chain without state began: then
each record goes through the chain alone. Behind a computation with state no user code is chained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from millwheel.adapters.ports import StoreView
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.failures import CHAINED_IN, CHAINED_OUT, chained_counter
from millwheel.core.model.names import NO_CHANNEL, ChannelName, without_nodes
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.core.order.chains import is_stateless
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.bundle.bundle import RECORD, Bundle
from millwheel.engine.workers.bundle.hangs import (
    TOGETHER_MARK,
    Avoided,
    Doing,
    Watched,
    record_mark,
)
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.inbox import UNANSWERED, Arrival
from millwheel.engine.workers.operators.callbacks import CallbackOperator


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A computation ``node`` that takes ``stream`` in the shards of another one, and those behind
    it. ``others``: some consumers of the stream have shards of their own."""

    node: str
    stream: str
    operator: CallbackOperator
    others: bool
    behind: Sequence[ChainLink] = ()


class _Chain:
    """A computation without state and those behind it, as they are watched."""

    def __init__(self, head: CallbackOperator, behind: Sequence[ChainLink]) -> None:
        self._head = head
        self._links = list(_all(behind))
        self._avoided = Avoided()
        self._alone: Doing | None = None
        """The record that goes through the chain alone."""

    @property
    def _careful(self) -> bool:
        """Whether a call did not return, so that each record goes alone."""
        return bool(self._avoided.apart or self._avoided.hangs or self._avoided.lone)

    def _one_by_one(self, arrivals: Sequence[Arrival]) -> Iterator[list[Arrival]]:
        """Each record, while it goes alone."""
        for arrival in arrivals:
            batch = arrival.batch.rows()
            for index in range(len(batch)):
                mark = record_mark(batch, arrival.channel, index)
                self._alone = Doing("record", batch.keys[index], mark)
                yield [replace(arrival, batch=batch.pick([index]))]
        self._alone = None

    def avoid(self, avoided: Avoided) -> None:
        """See :class:`millwheel.engine.workers.bundle.hangs.Watched`, as for the next three."""
        self._avoided = avoided
        self._head.avoid(avoided)

    def busy(self) -> bool:
        return self._head.busy() or any(each.operator.busy() for each in self._links)

    def progress(self) -> tuple[int, int]:
        counts = [self._head.progress(), *(each.operator.progress() for each in self._links)]
        return sum(first for first, _ in counts), sum(second for _, second in counts)

    def doing(self) -> Doing | None:
        own = self._head.doing()
        if own is not None:
            return own
        calls = [doing for each in self._links if (doing := each.operator.doing()) is not None]
        if not calls:
            return None
        return self._alone or Doing("batch", calls[0].key, TOGETHER_MARK)


class ChainOperator(_Chain, Operator):
    """The operator of a computation ``node`` without state, with others behind it."""

    emits_at_floor = CallbackOperator.emits_at_floor

    def __init__(self, node: str, head: CallbackOperator, behind: Sequence[ChainLink]) -> None:
        super().__init__(head, behind)
        self._node = node
        self._behind = behind

    def run(self, bundle: Bundle) -> None:
        if not self._careful:
            self._run(bundle)
            return
        for arrivals in self._one_by_one(bundle.arrivals):
            self._run(replace(bundle, arrivals=arrivals))

    def _run(self, bundle: Bundle) -> None:
        before = bundle.outputs.count
        self._head.run(bundle)
        bundle.count(chained_counter(self._node, CHAINED_OUT), bundle.outputs.count - before)
        _pass_on(self._behind, bundle, bundle)

    def durable(self, number: int, now_us: int) -> None:
        self._head.durable(number, now_us)

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        return self._head.answer(query, state, watermark_us)

    def watched(self) -> Watched:
        return self


class ReadChain(_Chain):
    """The computation that takes all that the source ``node`` reads, in the shards of that, and
    those behind it."""

    def __init__(self, node: str, link: ChainLink) -> None:
        super().__init__(link.operator, link.behind)
        self._node = node
        self._link = link

    def take(self, batches: Sequence[AnyBatch], channel: ChannelName, bundle: Bundle) -> None:
        """Run on the reads of one partition, as a part of ``bundle``."""
        bundle.count(chained_counter(self._node, CHAINED_OUT), sum(map(len, batches)))
        arrivals = arrived(batches, channel)
        parts = self._one_by_one(arrivals) if self._careful else [arrivals] if arrivals else ()
        for some in parts:
            _run_link(self._link, some, bundle)


def chain_of(node: Node, graph: Graph, make: Callable[[ComputationSpec], Operator]) -> Operator:
    """The operator of a computation, with those that are chained behind it."""
    assert node.computation is not None
    operator = make(node.computation)
    links = _links(node.name, graph, make)
    if links and not is_stateless(node.computation):
        operator.behind = partial(_pass_on_results, node.name, links)
    if not links or operator.behind is not None:
        return operator
    assert isinstance(operator, CallbackOperator)
    return ChainOperator(node.name, operator, links)


def chain_behind(
    source: Node, graph: Graph, make: Callable[[ComputationSpec], Operator]
) -> ReadChain | None:
    """The computations that are chained behind a source; None for none."""
    links = _links(source.name, graph, make)
    return ReadChain(source.name, links[0]) if links else None


def _links(name: str, graph: Graph, make: Callable[[ComputationSpec], Operator]) -> list[ChainLink]:
    """The computations directly behind a node, by their streams."""
    links = []
    behind = {
        each
        for each, before in graph.chained.items()
        if before == name and graph.nodes[each].computation is not None
    }
    for each in sorted(behind, key=lambda each: (graph.nodes[each].inputs[0].stream, each)):
        spec = graph.nodes[each].computation
        assert spec is not None
        operator, stream = make(spec), spec.inputs[0].stream
        assert isinstance(operator, CallbackOperator)
        others = not behind.issuperset(graph.consumers[stream])
        links.append(ChainLink(each, stream, operator, others, _links(each, graph, make)))
    return links


def _all(links: Sequence[ChainLink]) -> Iterator[ChainLink]:
    for link in links:
        yield link
        yield from _all(link.behind)


def _pass_on_results(node: str, links: Sequence[ChainLink], bundle: Bundle) -> None:
    """Run those behind a computation with state."""
    bundle.count(chained_counter(node, CHAINED_OUT), bundle.outputs.count)
    _pass_on(links, bundle, bundle)


def _pass_on(links: Sequence[ChainLink], results: Bundle, bundle: Bundle) -> None:
    """Run computations, and those behind them, on their part of ``results``, as a part of
    ``bundle``."""
    for stream, own_links in groupby(links, attrgetter("stream")):
        together = list(own_links)
        others = [link.node for link in together] if together[0].others else []
        batches = taken(stream, without_nodes(stream, others) if others else "", results)
        for link in together if batches else ():
            _run_link(link, arrived(batches), bundle)


def arrived(batches: Sequence[AnyBatch], channel: ChannelName = NO_CHANNEL) -> list[Arrival]:
    """Records that were made in the shard itself, or read there, as arrivals."""
    return [Arrival(channel, 0, 0, batch, UNANSWERED, MAX_TIME) for batch in batches]


def part_of(bundle: Bundle, arrivals: list[Arrival]) -> Bundle:
    """The part of a bundle that a chained node works on."""
    return Bundle(
        bundle.number,
        bundle.now_us,
        bundle.watermark,
        arrivals,
        bundle.overlay,
        {domain: TimerQueue(domain) for domain in Domain},  # those of the shard are of its first
        floor=bundle.floor,
    )


def _run_link(link: ChainLink, arrivals: list[Arrival], bundle: Bundle) -> None:
    part = part_of(bundle, arrivals)
    part.try_records()
    part.count(CHAINED_IN, part.tried[RECORD])
    link.operator.run(part)
    part.take_counts()
    part.count(CHAINED_OUT, part.outputs.count)
    _pass_on(link.behind, part, bundle)
    bundle.add(part, link.node, link.stream)


def taken(stream: str, for_others: str, results: Bundle) -> list[AnyBatch]:
    """The productions for a stream. They leave the shard only if others consume them, too, and for
    those alone, by the name ``for_others``."""
    outputs = results.outputs
    born_us = min([a.batch.born_us for a in results.arrivals if a.batch.born_us], default=0)
    batches: list[AnyBatch] = [batch for batch in outputs.columns if batch.stream == stream]
    outputs.columns = [
        batch.named(for_others) if batch.stream == stream else batch
        for batch in outputs.columns
        if batch.stream != stream or for_others
    ]
    produced = outputs.streams.pop(stream, None)
    if produced is not None and produced.raws:
        times, keys, raws = list(produced.timestamps), list(produced.keys), list(produced.raws)
        batches.append(Batch(stream, [], times, keys, raws, None, born_us))
        if for_others:
            outputs.streams[for_others] = produced
    if not for_others:
        outputs.count -= sum(map(len, batches))
    return batches
