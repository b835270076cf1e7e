"""Builds the machine of each shard from the pipeline: which operator, with which code, source or
sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millwheel.adapters.ports import Clock, StateStore
from millwheel.api import sets_timers
from millwheel.connect.kinds import lookup_of
from millwheel.connect.lookups.base import Lookup
from millwheel.connect.own_functions import expressions_in, language_of
from millwheel.connect.plug_ins import as_writer
from millwheel.connect.python_objects import load_object
from millwheel.connect.sinks.base import Sink, Writer
from millwheel.connect.sources.base import Partition, Source
from millwheel.core.columns.declared_fields import example_frame
from millwheel.core.columns.forms.computations import AnyPlan, computation_form
from millwheel.core.columns.forms.joins import near_pairings, window_of_join
from millwheel.core.columns.forms.sources import joins_in_columns
from millwheel.core.columns.forms.windows import input_types
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.expressions.terms import RECORD
from millwheel.core.formats.codec import stream_decoder
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.names import NodeName
from millwheel.core.model.percentiles import Shares, shares_by_node
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.order.chains import chains_of
from millwheel.core.order.labels import labels_of
from millwheel.core.pipeline.graph import Graph, Node, NodeKind, build_graph
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    AggregationStage,
    ComputationSpec,
    Delivery,
    PipelineSpec,
    Productions,
    SinkSpec,
)
from millwheel.core.pipeline.work import (
    CallbackSpec,
    DeduplicateSpec,
    EnrichSpec,
    IntervalJoinSpec,
    OverSpec,
    SlicesSpec,
    WindowedSpec,
)
from millwheel.core.rows.versions import EnrichPlan
from millwheel.core.windows.trees import trigger_from_tree
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.combining import combinings_of
from millwheel.engine.workers.delivery.consumer_keys import Extractor
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.instances import InstanceCounts
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.host.computation_maker import ComputationMaker, ShardParts
from millwheel.engine.workers.host.grouping import groupings_of
from millwheel.engine.workers.host.source_maker import SourceFactories, SourceMaker
from millwheel.engine.workers.operators.chains import chain_behind, chain_of
from millwheel.engine.workers.operators.windows.columns import warm_up
from millwheel.engine.workers.ports import BackgroundTask
from millwheel.engine.workers.recovery.write_behind import WriteBehindStore
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.productions import ShardIdentity
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.shard.verdicts import Policies
from millwheel.engine.workers.sinks.chain_end import ChainEnd, former_sink
from millwheel.engine.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.engine.workers.sinks.upsert import Table, UpsertOperator
from millwheel.engine.workers.sources.completion import measures_of
from millwheel.engine.workers.sources.partitions import kept_ends
from millwheel.engine.workers.store_read import StoreRead
from millwheel.errors import invariant
from millwheel.language.spec.callback_code import LoadedCode
from millwheel.language.spec.key_extractors import load_extractor

_WARM_ROWS = 60_000  # that warm the columns, about a bundle


@dataclass(frozen=True, slots=True)
class Factories:
    """Factories of sources and sinks, and the loader of user code. ``listed`` gives the partitions
    that a bounded source had when the run began (None: they lie in the root). ``by_name`` are
    streams whose partitions are assigned by their names also when they are bounded: they were read
    before all partitions were listed."""

    source: Callable[..., Source]
    sink: Callable[..., Sink]
    load: Callable[[str, str], Any] = load_object
    publish: Callable[[BackgroundTask], None] | None = None
    listed: Callable[[str, Source], Sequence[Partition]] | None = None
    by_name: Collection[str] = ()
    ends: Mapping[str, Sequence[Partition]] | None = None
    lookup: Callable[[ComputationSpec, str], Lookup] = lookup_of


class Assembly:
    """Makes shards of one pipeline. ``root`` holds the partition lists of bounded sources;
    ``outside`` builds what reaches out of the process."""

    def __init__(
        self,
        spec: PipelineSpec,
        root: str,
        clock: Clock,
        outside: Factories,
        limits: ShardLimits | None = None,
    ) -> None:
        self._outside = outside
        self._hangs: Hangs | None = None
        self._policies: Policies | None = None
        self.spec = spec
        graph = build_graph(spec)
        used = {computation.name: self._shares_of(computation) for computation in spec.computations}
        self.graph = replace(graph, shares=shares_by_node(graph.feeders, used))
        self._circles = {name: self.graph.circle(name) for name in self.graph.nodes}
        weak = [
            graph.nodes[each.name]
            for each in spec.computations
            if each.productions is Productions.WEAK
        ]
        self._numbered_weakly = {stream for node in weak for stream in node.outputs}
        self._clock = clock
        spec_limits = spec.limits
        shard = limits or ShardLimits()
        pending = max(shard.pending * spec_limits.in_flight // DEFAULTS.in_flight, 1)
        self._limits = replace(shard, pending=pending, given=spec_limits)
        self._labels = labels_of(self.graph, LoadedCode(self._load))
        chains = chains_of(self.graph, spec, self._labels.users)
        self.graph = replace(self.graph, chained=chains.before)
        self._language = language_of(spec)
        plans = {c.name: self._column_plan(c) for c in spec.computations}
        self._plans = {name: plan for name, plan in plans.items() if isinstance(plan, ColumnPlan)}
        self._undeclared = {
            name: plan for name, plan in plans.items() if isinstance(plan, PlansByType)
        }
        self._stateless = {
            name: plan for name, plan in plans.items() if isinstance(plan, StatelessPlans)
        }
        self._enriched = {
            name: plan for name, plan in plans.items() if isinstance(plan, EnrichPlan)
        }
        self._near = near_pairings(spec, self._language.compile, self._labels)
        joins = joins_in_columns(spec, self.graph, plans, self._near.keys())
        self._schemas = {s.name: self._load(s.schema) for s in spec.streams if s.schema}
        self._decode = stream_decoder(self._schemas)
        self._groups = groupings_of(
            spec, {**self._plans, **self._undeclared}, self._load, self._decode
        )
        self._fanout = self._fanout_of(self.graph)
        self._fanout.combinings = combinings_of(
            spec, self.graph, self._groups, self._limits.combine
        )
        self._sources = SourceMaker(
            spec=spec,
            graph=self.graph,
            root=Path(root),
            outside=SourceFactories(
                outside.source,
                outside.load,
                outside.listed,
                outside.by_name,
                kept_ends(Path(root)) if outside.ends is None else outside.ends,
            ),
            plans={**self._plans, **self._undeclared, **self._stateless, **self._enriched},
            joins=joins,
            schemas=self._schemas,
            limits=self._limits,
            fanout=self._fanout,
            fanout_of=self._fanout_of,
            labelled=self._labels.streams,
        )
        self._computations = ComputationMaker(
            spec=spec,
            graph=self.graph,
            plans=self._plans,
            undeclared=self._undeclared,
            stateless=self._stateless,
            near=self._near,
            enriched=self._enriched,
            joined={c.name: self._joined_by_bundle(c) for c in spec.computations},
            labels=self._labels,
            language=self._language,
            decode=self._decode,
            limits=self._limits,
            load=self._load,
            lookup=outside.lookup,
            held_table=self._sources.held_table,
            publish=outside.publish,
        )

    def _fanout_of(self, graph: Graph) -> Fanout:
        columns = {name: plan.looks_at for name, plan in self._plans.items() if not plan.whole}
        folder, most = self.spec.folder, self.spec.limits.key
        groups, consumers = self._groups, self._labels.consumers
        language = self._language

        def load(key: KeySpec) -> Extractor:
            return load_extractor(key, folder, language)

        return Fanout(graph, load, columns, most, groups, consumers, language)

    def _column_plan(self, computation: ComputationSpec) -> AnyPlan | None:
        """How a computation takes columns; None for one that takes records one by one."""
        parts = self.spec, self._load, self._language.compile, self._labels
        return computation_form(computation, *parts).plan

    def _joined_by_bundle(self, computation: ComputationSpec) -> Any:
        """The windows of a join that takes whole bundles; None for any other computation."""
        return window_of_join(computation, self.spec)

    def _load(self, name: str) -> Any:
        return self._outside.load(name, self.spec.folder)

    def waits_for_time(self) -> bool:
        """False when nothing is done at a certain event time: no window, no join, no timer of a
        callback."""
        return any(map(self._waits_for_time, self.spec.computations))

    def _waits_for_time(self, spec: ComputationSpec) -> bool:
        if spec.ordered:
            return True
        if isinstance(spec.work, CallbackSpec):
            return sets_timers(self._outside.load(spec.work.callback, self.spec.folder))
        in_time = WindowedSpec | SlicesSpec | EnrichSpec | DeduplicateSpec | OverSpec
        return isinstance(spec.work, in_time | IntervalJoinSpec)

    def warm_up(self) -> None:
        """Group a bundle by each plan, let sources read one, build the sinks: code is loaded,
        threads have begun, and memory is there, a fifth of a second that the first records would
        wait for."""
        for stream in self.spec.streams:
            if stream.source is not None and stream.source.kind != "injection":
                self._sources.built(stream).warm_up()
        for sink in self.spec.sinks:
            with expressions_in(self._language):
                self._outside.sink(sink, self.spec.folder)
        self.warm_up_plans()

    def warm_up_plans(self) -> None:
        """The part of it that groups records."""
        for name, plan in self._plans.items():
            computation = self.graph.nodes[name].computation
            assert computation is not None
            (node_input,) = computation.inputs
            types = input_types(computation, self.spec, self._language.compile)
            fields = {of: kind for of, kind in types.items() if kind != RECORD}
            warm_up(plan, node_input.stream, example_frame(fields, _WARM_ROWS))

    def publish_aside(self, publish: Callable[[BackgroundTask], None]) -> None:
        """Let sinks that can do without the loop write, and lookups ask, by ``publish`` from now
        on."""
        self._outside = replace(self._outside, publish=publish)
        self._computations.publish = publish

    def watch(self, hangs: Hangs) -> None:
        """Watch shards from now on, and let them avoid the calls that did not return for earlier
        owners."""
        self._hangs = hangs

    def stop_broken(self) -> None:
        """Let steps with too many failed calls wait until the run is stopped."""
        self._policies = self.graph.on_error

    def _shares_of(self, computation: ComputationSpec) -> Shares:
        """The percentile watermarks that the trigger of a computation looks at."""
        trigger = computation.firing.trigger
        if trigger is None:
            return ()
        return trigger_from_tree(
            trigger, lambda name: self._outside.load(name, self.spec.folder)
        ).shares()

    def make_shard(
        self,
        name: NodeName,
        entry: ShardEntry,
        store: StateStore,
        router: TableRouter,
        opened: StoreRead | None = None,
    ) -> Shard:
        """The machine of one shard, recovered from its open store. ``opened``: the data already
        read from that."""
        store = WriteBehindStore(store)
        node = self.graph.nodes[name]
        computation = node.computation
        weak = (
            computation is not None and computation.productions is Productions.WEAK
        ) or self._shows_at_once(node)
        exact = computation is None or computation.delivery is Delivery.EXACTLY_ONCE
        whose = (name, entry.shard, entry.token, self.spec.name)
        more = (self._circles[name], self.graph.hash_of(name), self.graph.makers(name))
        identity = ShardIdentity(*whose, weak, exact, *more)

        def make_operator(shard: Shard) -> Operator:
            return self._operator(node, ShardParts(entry, store, shard, router, opened))

        horizon = self._id_horizon_us(node) if exact else None
        parts = (
            self._fanout,
            router.route,
            self._limits_of(node),
            make_operator,
            horizon,
            self._policies,
            opened,
        )
        shard = Shard(identity, store, *parts)
        shard.productions.instances.measures = lambda rules: measures_of(
            shard.outbox, router, rules
        )
        if computation is not None and computation.stage is AggregationStage.PARTIAL:
            shard.instance_counts = InstanceCounts()
        if self._hangs is not None:
            shard.avoid(self._hangs.watch(shard.operator.watched(), name, entry))
        return shard

    def _limits_of(self, node: Node) -> ShardLimits:
        if node.kind is NodeKind.SINK:
            window, company = self._limits.window, self._limits.gather_us
            return ShardLimits(
                bundle=50_000, window=window, gather_us=company, given=self.spec.limits
            )
        return self._limits

    def _id_horizon_us(self, node: Node) -> int:
        if node.kind is NodeKind.SOURCE:
            return node.stream.id_horizon_us if node.stream is not None else 0
        # Streams without ids have a horizon, too: it must not make others' ids outlive their own.
        streams = [self.spec.stream(each.stream) for each in node.inputs]
        return max(
            (s.id_horizon_us for s in streams if s.id or s.name in self._numbered_weakly), default=0
        )

    def _operator(self, node: Node, shard_parts: ShardParts) -> Operator:
        if node.stream is not None:
            return self._source(node, shard_parts)
        if node.sink is not None:
            return self._sink(node.sink, shard_parts)
        return chain_of(
            node, self.graph, lambda spec: self._computations.operator(spec, shard_parts)
        )

    # --- sources ----------------------------------------------------------------------------------

    def _source(self, node: Node, shard_parts: ShardParts) -> Operator:
        entry, store = shard_parts.entry, shard_parts.store
        shard, router = shard_parts.shard, shard_parts.router
        chain = chain_behind(
            node, self.graph, lambda spec: self._computations.operator(spec, shard_parts)
        )
        end = self._chain_end(node, shard_parts)
        now_us = self._clock.now_us()
        return self._sources.operator(node, entry, store, shard, router, now_us, chain, end)

    def _chain_end(self, node: Node, shard_parts: ShardParts) -> ChainEnd | None:
        """The sink that is chained behind a source, or that was when a former owner of the shard
        committed batches that are perhaps not visible."""
        spec, former = self.graph.sink_behind(node.name), former_sink(shard_parts.store)
        takes = spec is not None and former in ("", spec.stream)
        if not takes:
            spec = next((each for each in self.spec.sinks if each.stream == former), None)
            invariant(
                not former or spec is not None,
                f"{shard_parts.entry.shard} has batches of a sink for {former}, which is gone",
            )
        if spec is None:
            return None
        writer, sink = self._writer(spec, shard_parts)
        return ChainEnd(spec.stream, self._append_sink(spec, sink, writer, shard_parts), takes)

    # --- sinks ------------------------------------------------------------------------------------

    def _shows_at_once(self, node: Node) -> bool:
        """Whether it is a sink whose cuts are visible before they are committed."""
        if node.sink is None:
            return False
        with expressions_in(self._language):
            return self._outside.sink(node.sink, self.spec.folder).shows_at_once

    def _sink(self, spec: SinkSpec, shard_parts: ShardParts) -> Operator:
        token, scales = shard_parts.entry.token, self.spec.scales.get(spec.stream, {})
        writer, sink = self._writer(spec, shard_parts)
        if sink.keeps_latest:
            table = Table(spec.key.kind is KeyKind.RECORD, shard_parts.shard.meta.watermark)
            return UpsertOperator(
                writer,
                token,
                shard_parts.store,
                self._decode,
                table,
                sink.flush_us,
                spec.stream,
                scales,
                self.spec.name,
            )
        return self._append_sink(spec, sink, writer, shard_parts)

    def _writer(self, spec: SinkSpec, shard_parts: ShardParts) -> tuple[Writer, Sink]:
        """The writer of a sink for one shard, and the sink."""
        entry = shard_parts.entry
        with expressions_in(self._language):
            sink = self._outside.sink(spec, self.spec.folder)
            return as_writer(sink.open(entry.shard, entry.token)), sink

    def _append_sink(
        self, spec: SinkSpec, sink: Sink, writer: Writer, shard_parts: ShardParts
    ) -> SinkOperator:
        entry, store, aside = shard_parts.entry, shard_parts.store, self._outside.publish
        scales = self.spec.scales.get(spec.stream, {})
        whose = (entry.shard, entry.token, store, aside, self.spec.name)
        shard = SinkShard(*whose, spec.stream, scales)
        return SinkOperator(
            writer, shard, self._decode, sink.flush_us, sink.cut_records, sink.shows_at_once
        )
