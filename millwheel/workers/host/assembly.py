"""Builds the machine of each shard from the pipeline: which operator, with which code, source or sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from millwheel.api import Computation, sets_timers, takes_batches
from millwheel.connectors.external.absence import BackOff, absence_of
from millwheel.connectors.lookups import lookup_of
from millwheel.core.columns.declared_fields import example_frame
from millwheel.core.columns.forms import (
    MadeColumns,
    Plan,
    SourceForm,
    computation_form,
    joins_in_columns,
    source_form,
    window_of_join,
)
from millwheel.core.columns.pairs import pairing_of
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.inferred import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import stream_decoder
from millwheel.core.grouping.catalogue import RULES
from millwheel.core.model.keys import key_hash
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.names import NodeName
from millwheel.core.model.percentiles import Shares, shares_by_node
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import Fellows
from millwheel.core.order.labels import labels_of
from millwheel.core.pipeline.branches import compile_branches
from millwheel.core.pipeline.graph import Graph, Node, NodeKind, build_graph
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    Delivery,
    KeyKind,
    LookupSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.steps import compile_steps
from millwheel.core.triggers.trees import trigger_from_tree
from millwheel.errors import SetupError
from millwheel.lookups.base import Lookup
from millwheel.lookups.cache import AnswerCache
from millwheel.ports import Clock, StateStore
from millwheel.python_objects import load_object, missing_file_hint
from millwheel.secret_values import revealed
from millwheel.sinks.adapted import as_writer
from millwheel.sinks.base import Sink
from millwheel.sources.base import Partition, Source
from millwheel.spec.callback_code import LoadedCode
from millwheel.spec.key_extractors import load_extractor
from millwheel.workers.bundle.hangs import Hangs
from millwheel.workers.bundle.operator import Operator
from millwheel.workers.delivery.beside import BesideColumns
from millwheel.workers.delivery.combining import combinings_of
from millwheel.workers.delivery.lane_times import LaneTimes
from millwheel.workers.delivery.routing import Fanout, TableRouter
from millwheel.workers.delivery.timestamps import Timestamps
from millwheel.workers.dictionaries.dictionary import DictionaryOperator
from millwheel.workers.host.grouping import groupings_of
from millwheel.workers.operators.batch_callbacks import BatchOperator
from millwheel.workers.operators.callbacks import CallbackOperator
from millwheel.workers.operators.columns import ColumnOperator, warm_up
from millwheel.workers.operators.grouped import GroupedOperator
from millwheel.workers.operators.joined import joined
from millwheel.workers.operators.joins import JoinOperator
from millwheel.workers.operators.lookups import NO_ANSWER, LookupLine, LookupOperator, LookupShard
from millwheel.workers.operators.record_computations import Branched, Stepped, Tabled, deduplicated
from millwheel.workers.operators.window_callback import WindowCallbackOperator
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.ports import Errand
from millwheel.workers.recovery.write_behind import WriteBehindStore
from millwheel.workers.shard.bundle_sizes import ShardLimits
from millwheel.workers.shard.productions import ShardIdentity
from millwheel.workers.shard.shard import Shard
from millwheel.workers.shard.verdicts import Policies
from millwheel.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.workers.sinks.upsert import Table, UpsertOperator
from millwheel.workers.slices.sliced import SlicesOperator
from millwheel.workers.sources.completion import CompletionTimes
from millwheel.workers.sources.guessed import GuessedTypes, WholeRecords
from millwheel.workers.sources.injection import InjectionOperator
from millwheel.workers.sources.partitions import decode_partitions, kept_ends, spread_of
from millwheel.workers.sources.source import SourceOperator
from millwheel.workers.sources.source_parts import SourceParts
from millwheel.workers.state.column_segments import ColumnShard
from millwheel.workers.store_read import StoreRead

_CACHE_ENTRIES = 100_000  # values of keys that an operator keeps decoded
_WARM_ROWS = 60_000  # that warm the columns, about a bundle


@dataclass(frozen=True, slots=True)
class _ShardParts:
    """Where a shard is built: its entry, store and machine, as an operator's maker sees them."""

    entry: ShardEntry
    store: StateStore
    shard: Shard
    router: TableRouter
    opened: StoreRead | None


@dataclass(frozen=True, slots=True)
class Factories:
    """Factories of sources and sinks, and the loader of user code. ``listed`` gives the partitions that a bounded
    source had when the run began (None: they lie in the root). ``by_name`` are streams whose partitions are assigned by
    their names also when they are bounded: they were read before all were known."""

    source: Callable[..., Source]
    sink: Callable[..., Sink]
    load: Callable[[str, str], Any] = load_object
    publish: Callable[[Errand], None] | None = None
    listed: Callable[[str, Source], Sequence[Partition]] | None = None
    by_name: Collection[str] = ()
    ends: Mapping[str, Sequence[Partition]] | None = None
    lookup: Callable[[ComputationSpec, str], Lookup] = lookup_of


class Assembly:
    """Makes shards of one pipeline. ``root`` holds the partition lists of bounded sources; ``outside`` builds what
    reaches out of the process."""

    def __init__(
        self, spec: PipelineSpec, root: str, clock: Clock, outside: Factories, limits: ShardLimits | None = None
    ) -> None:
        self._outside = outside
        self._hangs: Hangs | None = None
        self._answers: dict[str, AnswerCache] = {}
        """By computation: its shards share a cache, all on the thread of the loop."""
        self._policies: Policies | None = None
        self.spec = spec
        graph = build_graph(spec)
        used = {computation.name: self._shares_of(computation) for computation in spec.computations}
        self.graph = replace(graph, shares=shares_by_node(graph.feeders, used))
        self._circles = {name: self.graph.circle(name) for name in self.graph.nodes}
        weak = [graph.nodes[each.name] for each in spec.computations if each.productions is Productions.WEAK]
        self._numbered_weakly = {stream for node in weak for stream in node.outputs}
        self._root = Path(root)
        self._ends = kept_ends(self._root) if outside.ends is None else outside.ends
        self._clock = clock
        given = spec.limits
        shard = limits or ShardLimits()
        pending = max(shard.pending * given.in_flight // DEFAULTS.in_flight, 1)
        self._limits = replace(shard, pending=pending, given=given)
        plans = {c.name: self._column_plan(c) for c in spec.computations}
        self._plans = {name: plan for name, plan in plans.items() if isinstance(plan, ColumnPlan)}
        self._undeclared = {name: plan for name, plan in plans.items() if isinstance(plan, PlansByType)}
        self._joins = joins_in_columns(spec, self.graph, plans)
        self._schemas = {s.name: self._schema(s) for s in spec.streams if s.schema}
        self._decode = stream_decoder(self._schemas)
        self._groups = groupings_of(spec, {**self._plans, **self._undeclared}, self._load, self._decode)
        self._labels = labels_of(self.graph, LoadedCode(self._load))
        self._fanout = self._fanout_of(self.graph)
        self._fanout.combinings = combinings_of(spec, self.graph, self._groups, self._limits.combine)

    def _fanout_of(self, graph: Graph) -> Fanout:
        columns = {name: plan.needs for name, plan in self._plans.items()}
        folder, most = self.spec.folder, self.spec.limits.key
        groups, takers = self._groups, self._labels.takers
        return Fanout(graph, lambda key: load_extractor(key, folder), columns, most, groups, takers)

    def _column_plan(self, computation: ComputationSpec) -> Plan | None:
        """How a computation takes columns; None for one that takes records one by one."""
        return computation_form(computation, self.spec, self._load, compile_expression).plan

    def _load(self, name: str) -> Any:
        return self._outside.load(name, self.spec.folder)

    def waits_for_time(self) -> bool:
        """False when nothing is done at a certain event time: no window, no join, no timer of a callback."""
        return any(map(self._waits_for_time, self.spec.computations))

    def _waits_for_time(self, spec: ComputationSpec) -> bool:
        if spec.window is not None or spec.slices is not None or spec.ordered:
            return True
        if spec.callback:
            kind = self._outside.load(spec.callback, self.spec.folder)
            return sets_timers(kind)
        return spec.enrich is not None or spec.deduplicate is not None

    def warm_up(self) -> None:
        """Group a bundle by each plan, let sources read one, build the sinks: code is loaded, threads have begun, and
        memory is there, a fifth of a second that the first records would wait for."""
        for stream in self.spec.streams:
            if stream.source is not None and stream.source.kind != "injection":
                schema = self._schemas.get(stream.name)
                source = self._outside.source(stream.source, self.spec.folder, schema, stream.fields)
                source.warm_up()
        for sink in self.spec.sinks:
            self._outside.sink(sink, self.spec.folder)
        self.warm_up_plans()

    def warm_up_plans(self) -> None:
        """The part of it that groups records."""
        for name, plan in self._plans.items():
            (given,) = self.graph.nodes[name].inputs
            warm_up(plan, given.stream, example_frame(self.spec.stream(given.stream).fields, _WARM_ROWS))

    def publish_aside(self, publish: Callable[[Errand], None]) -> None:
        """From here on, sinks that can do without the loop write, and lookups ask, by ``publish``."""
        self._outside = replace(self._outside, publish=publish)

    def watch(self, hangs: Hangs) -> None:
        """From now on, shards are watched, and avoid the calls that did not return for earlier owners."""
        self._hangs = hangs

    def stop_broken(self) -> None:
        """From here on, steps with too many failed calls wait until the run is stopped."""
        self._policies = self.graph.on_error

    def _shares_of(self, computation: ComputationSpec) -> Shares:
        """The percentile watermarks that the trigger of a computation looks at."""
        if computation.trigger is None:
            return ()
        return trigger_from_tree(computation.trigger, lambda name: self._outside.load(name, self.spec.folder)).shares()

    def make_shard(
        self, name: NodeName, entry: ShardEntry, store: StateStore, router: TableRouter, opened: StoreRead | None = None
    ) -> Shard:
        """The machine of one shard, recovered from its open store. ``opened``: what was read of that already."""
        store = WriteBehindStore(store)
        node = self.graph.nodes[name]
        computation = node.computation
        weak = (computation is not None and computation.productions is Productions.WEAK) or self._shows_at_once(node)
        exact = computation is None or computation.delivery is Delivery.EXACTLY_ONCE
        circle = self._circles[name]
        hashed = self.graph.hash_of(name)
        identity = ShardIdentity(name, entry.shard, entry.token, self.spec.name, weak, exact, circle, hashed)

        def make_operator(shard: Shard) -> Operator:
            return self._operator(node, _ShardParts(entry, store, shard, router, opened))

        horizon = self._id_horizon_us(node) if exact else None
        parts = (self._fanout, router.route, self._limits_of(node), make_operator, horizon, self._policies, opened)
        shard = Shard(identity, store, *parts)
        if self._hangs is not None:
            shard.avoid(self._hangs.watch(shard.operator.watched(), name, entry))
        return shard

    def _limits_of(self, node: Node) -> ShardLimits:
        if node.kind is NodeKind.SINK:
            window, company = self._limits.window, self._limits.company_us
            return ShardLimits(bundle=50_000, window=window, company_us=company, given=self.spec.limits)
        return self._limits

    def _id_horizon_us(self, node: Node) -> int:
        if node.kind is NodeKind.SOURCE:
            return node.stream.id_horizon_us if node.stream is not None else 0
        # Streams without ids have a horizon, too: it must not make others' ids outlive their own.
        streams = [self.spec.stream(given.stream) for given in node.inputs]
        return max((s.id_horizon_us for s in streams if s.id or s.name in self._numbered_weakly), default=0)

    def _operator(self, node: Node, shard_parts: _ShardParts) -> Operator:
        if node.stream is not None:
            return self._source(node, node.stream, shard_parts)
        if node.sink is not None:
            return self._sink(node.sink, shard_parts)
        assert node.computation is not None
        return self._computation(node.computation, shard_parts)

    # --- computations ------------------------------------------------------------------------------------

    def _computation(self, spec: ComputationSpec, shard_parts: _ShardParts) -> Operator:
        overlay = shard_parts.shard.overlay
        if spec.window is not None and (spec.callback or spec.join is not None):
            instance = self._instance(spec) if spec.callback else joined(spec, self.spec)
            given = (spec, self.spec, instance, overlay, self._decode, _CACHE_ENTRIES)
            if (window := self._joined_by_bundle(spec)) is not None:
                return JoinOperator(*given, pairing_of(spec, self.spec, window), self._column_shard(shard_parts))
            windows = WindowCallbackOperator(*given)
            windows.share_timers.passed = shard_parts.shard.input_shares
            return windows
        if spec.lookup is not None:
            return self._lookup(spec, spec.lookup, shard_parts)
        if spec.dictionary is not None:
            stored = None if shard_parts.opened is None else shard_parts.opened.numbers
            entry = shard_parts.entry
            return DictionaryOperator(spec, self.spec, shard_parts.store, overlay, self._decode, entry.shard, stored)
        plan = self._plans.get(spec.name)
        if spec.slices is not None:
            return SlicesOperator(spec, self.spec, shard_parts.store, overlay, self._decode, _CACHE_ENTRIES, plan)
        if spec.window is None:
            instance = self._instance(spec) if spec.callback else self._built_in(spec)
            kind = BatchOperator if takes_batches(type(instance)) else CallbackOperator
            limits, use = self.spec.limits, self._labels.of(spec.name)
            return kind(spec, self.spec.name, instance, overlay, self._decode, _CACHE_ENTRIES, limits, use)
        groups: Plan | None = self._undeclared.get(spec.name) if plan is None else plan
        if groups is not None:
            rows: WindowedOperator = GroupedOperator(spec, self.spec, groups, overlay, self._decode, _CACHE_ENTRIES)
        else:
            rows = WindowedOperator(spec, self.spec, overlay, self._decode, _CACHE_ENTRIES)
        rows.share_timers.passed = shard_parts.shard.input_shares
        if groups is None or not groups.held:
            return rows
        return ColumnOperator(spec, groups, self._column_shard(shard_parts), rows, self._decode)

    def _joined_by_bundle(self, spec: ComputationSpec) -> Any:
        return window_of_join(spec, self.spec)

    def _column_shard(self, shard_parts: _ShardParts) -> ColumnShard:
        meta = shard_parts.shard.meta
        closed = meta.watermark if meta.closed is None else meta.closed
        return ColumnShard(shard_parts.entry.shard, shard_parts.store, closed)

    def _lookup(self, spec: ComputationSpec, given: LookupSpec, shard_parts: _ShardParts) -> Operator:
        lookup, send = self._outside.lookup(spec, self.spec.folder), self._outside.publish
        # The caller is the loop, which must not sleep here; it asks again at a later time.
        back_off = BackOff() if send is not None else BackOff(0.0)
        line = LookupLine(lookup, absence_of(f"{lookup.where} (lookup)", NO_ANSWER), back_off)
        new = AnswerCache(given.cache_size, given.cache_ttl_us, given.cache_absent)
        cache = self._answers.setdefault(spec.name, new)
        shard = LookupShard(shard_parts.entry.shard, shard_parts.entry.token, line, cache, lookup.by, send)
        use, overlay = self._labels.of(spec.name), shard_parts.shard.overlay
        return LookupOperator(spec, self.spec.name, shard, overlay, self._decode, self.spec.limits, use)

    def _instance(self, spec: ComputationSpec) -> Computation:
        kind = self._outside.load(spec.callback, self.spec.folder)
        try:
            instance = kind(**revealed(spec.options))
        except TypeError as ex:
            raise SetupError(f"{spec.where}: {spec.callback}({dict(spec.options)}) cannot be built: {ex}") from ex
        except FileNotFoundError as ex:
            text = f"{ex}{missing_file_hint(ex)}"
            raise SetupError(f"{spec.where}: {spec.callback} cannot be built: {text}") from ex
        if not isinstance(instance, Computation):
            raise SetupError(f"{spec.where}: {spec.callback} is no millwheel.Computation; derive the class from it")
        return instance

    def _built_in(self, spec: ComputationSpec) -> Computation:
        if spec.enrich is not None:
            return joined(spec, self.spec)
        if spec.deduplicate is not None:
            return deduplicated(spec.deduplicate, spec.outputs)
        if spec.table is not None:
            return Tabled(spec.table, spec.outputs)
        if spec.branches:
            return Branched(compile_branches(spec.branches, spec.match_all))
        return Stepped(compile_steps(spec.steps, lambda name: self._outside.load(name, self.spec.folder)), spec.outputs)

    # --- sources -----------------------------------------------------------------------------------------

    def _source(self, node: Node, stream: StreamSpec, shard_parts: _ShardParts) -> Operator:
        assert stream.source is not None
        function = self._outside.load(stream.timestamp, self.spec.folder) if ":" in stream.timestamp else None
        timestamps = Timestamps(stream, function, stream.states_unit)
        schema = self._schemas.get(stream.name)
        now_us = self._clock.now_us()
        fellows = Fellows(node.name, self.graph.fellows(node.name))
        if stream.source.kind == "injection":
            about = (self.spec.name, NodeName(node.name), stream, timestamps, schema, shard_parts.store, now_us)
            return InjectionOperator(*about, self.spec.limits, bool(self._ends), fellows)
        source = self._outside.source(stream.source, self.spec.folder, schema, stream.fields)
        partitions = self._partitions(stream, source)
        form = self.source_form_of(stream)
        by_name = not source.bounded or stream.name in self._outside.by_name
        combining = self._fanout.combinings.get(stream.name)
        spread = {} if by_name else spread_of(partitions())
        rules = self._fanout.rules(stream.name)
        completion = None
        if any(RULES[rule.grouping].goes_by_times for rule in rules.values()):
            times = shard_parts.shard.outbox.times = LaneTimes()
            router = shard_parts.router
            completion = partial(CompletionTimes, times, router.shard_of, lambda shard: router.distance(shard))
        parts = SourceParts(
            pipeline=self.spec.name,
            node=NodeName(node.name),
            stream=stream,
            source=source,
            partitions=partitions,
            mine=lambda name: (spread[name] if name in spread else key_hash(name)) in shard_parts.entry.range,
            fanout=self._fanout,
            timestamps=timestamps,
            max_records=self._limits.bundle,
            needs=form.needs,
            whole=WholeRecords(stream.fields) if form.whole else None,
            guessed=None if form.inferred is None else GuessedTypes(form.inferred, form.accepts),
            beside=None if form.made is None else self.beside_of(stream, form.made),
            limits=self.spec.limits,
            first_owner=shard_parts.entry.lease.is_first,
            settle_us=self._limits.settle_us,
            to_the_ends=bool(self._ends),
            rules=rules,
            completion=completion,
            combining=combining if combining is not None and not combining.rest else None,
            labelled=stream.name in self._labels.streams,
            fellows=fellows,
        )
        return SourceOperator(parts, shard_parts.store, now_us)

    def source_form_of(self, stream: StreamSpec) -> SourceForm:
        """The form in which a stream is read."""
        return source_form(stream, self.graph, {**self._plans, **self._undeclared}, self._joins)

    def beside_of(self, stream: StreamSpec, made: MadeColumns) -> BesideColumns:
        """How columns are made of the records of a stream."""
        consumers = self.graph.consumers[stream.name]
        taking, others = (
            self._fanout_of(replace(self.graph, consumers={stream.name: names}))
            for names in (
                tuple(name for name in consumers if name in made.nodes),
                tuple(name for name in consumers if name not in made.nodes),
            )
        )
        return BesideColumns(made, stream.fields, self._limits.columns_from, taking, others)

    def _partitions(self, stream: StreamSpec, source: Source) -> Callable[[], Sequence[Partition]]:
        if not source.bounded and (ends := self._ends.get(stream.name)) is not None:
            return lambda: ends
        if not source.bounded:
            return source.partitions
        if self._outside.listed is not None:
            listed = self._outside.listed(stream.name, source)
            return lambda: listed
        kept = self._root / "inputs" / f"{stream.name}.json"
        names = decode_partitions(kept.read_bytes())
        return lambda: names

    def _schema(self, stream: StreamSpec) -> Any:
        return self._outside.load(stream.schema, self.spec.folder)

    # --- sinks -------------------------------------------------------------------------------------------

    def _shows_at_once(self, node: Node) -> bool:
        """Whether it is a sink whose cuts are visible before they are committed."""
        return node.sink is not None and self._outside.sink(node.sink, self.spec.folder).shows_at_once

    def _sink(self, spec: SinkSpec, shard_parts: _ShardParts) -> Operator:
        sink = self._outside.sink(spec, self.spec.folder)
        token = shard_parts.entry.token
        writer = as_writer(sink.open(shard_parts.entry.shard, token))
        if sink.keeps_latest:
            table = Table(spec.key.kind is KeyKind.RECORD, shard_parts.shard.meta.watermark)
            return UpsertOperator(writer, token, shard_parts.store, self._decode, table, sink.flush_us, spec.stream)
        aside = self._outside.publish
        shard = SinkShard(shard_parts.entry.shard, token, shard_parts.store, aside, self.spec.name, spec.stream)
        return SinkOperator(writer, shard, self._decode, sink.flush_us, sink.cut_records, sink.shows_at_once)
