"""Makes the operators of the computations of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.api import takes_batches
from millwheel.connect.connectors.external.absence import BackOff, absence_of
from millwheel.connect.lookups.base import AnswerCache, Lookup
from millwheel.connect.own_functions import expressions_in
from millwheel.core.columns.forms.computations import Plan
from millwheel.core.columns.pairs import pairing_of
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.near_pairs import NearPairing
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.columns.stateless.tables import EnrichColumns
from millwheel.core.expressions.language import Language
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import ReadFirst
from millwheel.core.order.labels import Labels
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    DictionarySpec,
    EnrichSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    SlicesSpec,
    StepsSpec,
    TopSpec,
    WindowCallbackSpec,
)
from millwheel.core.rows.columns import first_columns, lookback_form
from millwheel.core.rows.versions import EnrichPlan
from millwheel.core.windows.windows import OfInput, Tumbling
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.dictionaries.dictionary import DictionaryOperator
from millwheel.engine.workers.host.computation_objects import computation_of
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.broadcast.copies import Copied, CopiesOperator
from millwheel.engine.workers.operators.broadcast.enrichment import BroadcastOperator, EnrichedWhole
from millwheel.engine.workers.operators.broadcast.table import HeldTable, key_bytes_of
from millwheel.engine.workers.operators.callbacks import CallbackOperator, Decode
from millwheel.engine.workers.operators.keyed_joins.regular_columns import (
    column_join,
    has_column_form,
)
from millwheel.engine.workers.operators.lookups import (
    NO_ANSWER,
    LookupLine,
    LookupOperator,
    LookupShard,
)
from millwheel.engine.workers.operators.ranked.columns import FirstRowsOperator
from millwheel.engine.workers.operators.ranked.over_columns import OverOperator
from millwheel.engine.workers.operators.slices.computation import SlicesOperator
from millwheel.engine.workers.operators.stateless import StatelessOperator
from millwheel.engine.workers.operators.waiting import EnrichOperator, OrderedOperator
from millwheel.engine.workers.operators.windows.callback import WindowCallbackOperator
from millwheel.engine.workers.operators.windows.change_log import ChangeLogOperator
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.join import FiringAgainOperator, WindowJoinOperator
from millwheel.engine.workers.operators.windows.join_columns import JoinOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.ports import BackgroundTask
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.store_read import StoreRead
from millwheel.language.spec.key_extractors import load_extractor

_CACHE_ENTRIES = 100_000  # values of keys that an operator keeps decoded


@dataclass(frozen=True, slots=True)
class ShardParts:
    """The parts from which an operator is built: entry, store and machine of its shard."""

    entry: ShardEntry
    store: StateStore
    shard: Shard
    router: TableRouter
    opened: StoreRead | None


@dataclass(slots=True)
class ComputationMaker:
    """Makes the operators of one pipeline's computations. By computation: ``plans`` are those of
    aggregations in columns, ``undeclared`` the same where types come with the records,
    ``stateless`` those of steps, branches and tables that are held, ``near`` those of joins without
    windows, ``enriched`` those of enrichments as of event time; ``joined`` are the windows of joins
    that take whole bundles. ``publish`` does work aside from the loop, if there is any."""

    spec: PipelineSpec
    graph: Graph
    plans: Mapping[str, ColumnPlan]
    undeclared: Mapping[str, PlansByType]
    stateless: Mapping[str, StatelessPlans]
    near: Mapping[str, NearPairing]
    enriched: Mapping[str, EnrichPlan]
    joined: Mapping[str, Tumbling | OfInput | None]
    labels: Labels
    language: Language
    decode: Decode
    limits: ShardLimits
    load: Callable[[str], Any]
    lookup: Callable[[ComputationSpec, str], Lookup]
    held_table: Callable[[ComputationSpec, Language], HeldTable]
    publish: Callable[[BackgroundTask], None] | None
    _held: dict[str, HeldTable] = field(default_factory=dict)
    _answers: dict[str, AnswerCache] = field(default_factory=dict)
    """By computation: its shards share a cache, all on the thread of the loop."""

    def operator(self, spec: ComputationSpec, shard_parts: ShardParts) -> Operator:
        """The operator of one shard of a computation."""
        overlay = shard_parts.shard.overlay
        match spec.work:
            case AggregationSpec():
                return self._aggregation(spec, shard_parts)
            case WindowCallbackSpec() | JoinSpec():
                return self._records_of_windows(spec, shard_parts)
            case LookupSpec() as work:
                return self._lookup(spec, work, shard_parts)
            case DictionarySpec():
                stored = None if shard_parts.opened is None else shard_parts.opened.numbers
                entry = shard_parts.entry
                return DictionaryOperator(
                    spec, self.spec, shard_parts.store, overlay, self.decode, entry.shard, stored
                )
            case SlicesSpec():
                plan, few = self.plans.get(spec.name), self.limits.rows_below
                arguments = (shard_parts.store, overlay, self.decode, _CACHE_ENTRIES)
                return SlicesOperator(spec, self.spec, *arguments, plan, few)
            case EnrichSpec() as work if work.held:
                return self._broadcast(spec, overlay)
        instance = computation_of(spec, self.spec, self.load)
        kind = BatchOperator if takes_batches(type(instance)) else CallbackOperator
        limits, use = self.spec.limits, self.labels.of(spec.name)
        parts = (spec, self.spec.name, instance, overlay, self.decode, _CACHE_ENTRIES, limits)
        plans = self.stateless.get(spec.name)
        if plans is not None and not spec.ordered:
            few = self._few_of(spec)
            return StatelessOperator(*parts, plans, few, self.language)
        if isinstance(instance, Copied):
            operator: CallbackOperator = CopiesOperator(instance, *parts[:2], *parts[3:], use)
        elif spec.ordered and isinstance(spec.work, StepsSpec | BranchesSpec):
            few, shard = self.limits.rows_below, self._column_shard(shard_parts)
            operator = OrderedOperator(plans, limits, shard, few, *parts, use)
        elif isinstance(spec.work, EnrichSpec) and spec.work.waits and not spec.work.timeless:
            few, shard = self.limits.rows_below, self._column_shard(shard_parts)
            operator = EnrichOperator(self.enriched.get(spec.name), shard, few, *parts, use)
        elif has_column_form(spec):
            pairing, shard = self.near.get(spec.name), self._column_shard(shard_parts)
            operator = column_join(pairing, shard, self.limits.rows_below, *parts, use)
        elif isinstance(spec.work, TopSpec) and not spec.work.upserts:
            plan, shard = self.plans.get(spec.name), self._column_shard(shard_parts)
            columns = first_columns(spec, self.spec, plan, use, self.language.compile)
            few = self.limits.rows_below
            operator = FirstRowsOperator(plan, columns, shard, few, *parts, use)
        elif isinstance(spec.work, OverSpec) and spec.work.size is not None:
            form = lookback_form(spec, self.spec, self.undeclared.get(spec.name))
            few, shard = self.limits.rows_below, self._column_shard(shard_parts)
            operator = OverOperator(form, shard, few, *parts, use)
        else:
            operator = kind(*parts, use)
        operator.first = ReadFirst(self.graph.read_first(spec.name))
        return operator

    def _broadcast(self, spec: ComputationSpec, overlay: Overlay) -> Operator:
        work = spec.work_as(EnrichSpec)
        language, limits = self.language, self.spec.limits
        by = work.broadcast.by if work.broadcast is not None else None
        assert by is not None
        table = self._held.get(spec.name)
        if table is None:
            table = self._held[spec.name] = self.held_table(spec, language)
        finds = None
        if by.kind is not KeyKind.RECORD:
            extract = load_extractor(by, self.spec.folder, language)
            finds = key_bytes_of(extract, limits.key)
        made = EnrichedWhole(work, table, finds, spec.outputs)
        parts = (spec, self.spec.name, made, overlay, self.decode, _CACHE_ENTRIES, limits)
        columns = EnrichColumns(work, spec.outputs, language.compile, limits.key)
        rest = (self.stateless.get(spec.name), self._few_of(spec), language)
        return BroadcastOperator(table, columns, *parts, *rest, self.labels.of(spec.name))

    def _few_of(self, spec: ComputationSpec) -> int:
        """The number of records below which bundles go by rows. 0 where a consumer infers types
        from columns: it would go on in rows itself."""
        consumers = {name for each in spec.outputs for name in self.graph.consumers.get(each, ())}
        by_type = self.undeclared.keys() | self.near.keys()
        return 0 if consumers & by_type else self.limits.rows_below

    def _records_of_windows(self, spec: ComputationSpec, shard_parts: ShardParts) -> Operator:
        """A callback that gets the records of a window, or a join."""
        arguments = (
            spec,
            self.spec,
            computation_of(spec, self.spec, self.load),
            shard_parts.shard.overlay,
            self.decode,
            _CACHE_ENTRIES,
        )
        if (window := self.joined.get(spec.name)) is not None:
            return JoinOperator(
                *arguments, pairing_of(spec, self.spec, window), self._column_shard(shard_parts)
            )
        kind: type[WindowCallbackOperator] = WindowCallbackOperator
        if isinstance(spec.work, JoinSpec):
            kind = FiringAgainOperator if spec.work.changes else WindowJoinOperator
        windows = kind(*arguments)
        windows.share_timers.passed = shard_parts.shard.input_shares
        return windows

    def _aggregation(self, spec: ComputationSpec, shard_parts: ShardParts) -> Operator:
        plan, overlay = self.plans.get(spec.name), shard_parts.shard.overlay
        few = self.limits.rows_below
        groups: Plan | None = self.undeclared.get(spec.name) if plan is None else plan
        if groups is not None:
            parts = (spec, self.spec, groups, overlay, self.decode, _CACHE_ENTRIES, few)
            if isinstance(groups, ColumnPlan) and groups.versions:
                return ChangeLogOperator(self._column_shard(shard_parts), self.language, *parts)
            rows: WindowedOperator = GroupedOperator(*parts)
        else:
            rows = WindowedOperator(spec, self.spec, overlay, self.decode, _CACHE_ENTRIES)
        rows.share_timers.passed = shard_parts.shard.input_shares
        if groups is None or not groups.held:
            return rows
        shard = self._column_shard(shard_parts)
        return ColumnOperator(spec, groups, shard, rows, self.decode, few, self.language)

    def _column_shard(self, shard_parts: ShardParts) -> ColumnShard:
        meta = shard_parts.shard.meta
        closed = meta.watermark if meta.closed is None else meta.closed
        return ColumnShard(shard_parts.entry.shard, shard_parts.store, closed)

    def _lookup(self, spec: ComputationSpec, work: LookupSpec, shard_parts: ShardParts) -> Operator:
        with expressions_in(self.language):
            lookup = self.lookup(spec, self.spec.folder)
        send = self.publish
        # The caller is the loop, which must not sleep here; it asks again at a later time.
        back_off = BackOff() if send is not None else BackOff(0.0)
        line = LookupLine(lookup, absence_of(f"{lookup.where} (lookup)", NO_ANSWER), back_off)
        new = AnswerCache(work.cache_size, work.cache_ttl_us, work.cache_absent)
        cache = self._answers.setdefault(spec.name, new)
        shard = LookupShard(
            shard_parts.entry.shard, shard_parts.entry.token, line, cache, lookup.by, send
        )
        parts = (shard, shard_parts.shard.overlay, self.decode, self.spec.limits)
        use = self.labels.of(spec.name)
        return LookupOperator(spec, self.spec.name, *parts, use, self.language)
