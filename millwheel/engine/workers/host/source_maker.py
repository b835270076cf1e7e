"""Makes the operator of each shard of a source: its partitions, the form in which they are read,
and the needs of its consumers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import wait_for
from millwheel.connect.sources.base import Partition, Source
from millwheel.core.columns.forms.computations import AnyPlan
from millwheel.core.columns.forms.sources import MadeColumns, SourceForm, source_form
from millwheel.core.expressions.language import Language
from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import Fellows, ReadFirst
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, StreamSpec
from millwheel.core.pipeline.work import EnrichSpec
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.beside import BesideColumns
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.engine.workers.operators.broadcast.rows import (
    decode_rows,
    has_kept_rows,
    rows_file,
    table_source,
)
from millwheel.engine.workers.operators.broadcast.table import HeldTable, TableRows
from millwheel.engine.workers.operators.chains import ReadChain
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.sinks.chain_end import ChainEnd
from millwheel.engine.workers.sinks.source_with_sink import SourceWithSink
from millwheel.engine.workers.sources.completion import completion_of
from millwheel.engine.workers.sources.inferred_types import GuessedTypes, WholeRecords
from millwheel.engine.workers.sources.injection import InjectionOperator
from millwheel.engine.workers.sources.partitions import decode_partitions, spread_of
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.engine.workers.sources.source_parts import SourceParts


@dataclass(frozen=True, slots=True)
class SourceFactories:
    """The factories of sources, and the loader of user code. ``listed`` returns the partitions that
    a bounded source had when the run began (None: they lie in the root). ``by_name`` are streams
    whose partitions are assigned by their names also when they are bounded: they were read before
    all partitions were listed. ``ends`` are the partitions with which unbounded streams end, where
    the run has such."""

    source: Callable[..., Source]
    load: Callable[[str, str], Any]
    listed: Callable[[str, Source], Sequence[Partition]] | None
    by_name: Collection[str]
    ends: Mapping[str, Sequence[Partition]]


@dataclass(frozen=True, slots=True)
class SourceMaker:
    """Makes the sources of one pipeline. ``root`` holds the partition lists of bounded ones;
    ``plans`` and ``joins`` are those of the computations that take columns, and ``labelled`` the
    streams whose records have labels."""

    spec: PipelineSpec
    graph: Graph
    root: Path
    outside: SourceFactories
    plans: Mapping[str, AnyPlan]
    joins: frozenset[str]
    schemas: Mapping[str, Any]
    limits: ShardLimits
    fanout: Fanout
    fanout_of: Callable[[Graph], Fanout]
    labelled: Collection[str]

    def built(self, stream: StreamSpec) -> Source:
        """The source itself."""
        schema = self.schemas.get(stream.name)
        return self.outside.source(stream.source, self.spec.folder, schema, stream.declared)

    def operator(
        self,
        node: Node,
        entry: ShardEntry,
        store: StateStore,
        shard: Shard,
        router: TableRouter,
        now_us: int,
        chain: ReadChain | None,
        end: ChainEnd | None,
    ) -> Operator:
        """The operator of one shard of the source ``node``. ``chain`` runs those behind it, and
        ``end`` is their sink."""
        stream = node.stream
        assert stream is not None
        assert stream.source is not None
        timestamps = self._timestamps(stream)
        fellows = Fellows(node.name, self.graph.fellows(node.name))
        if stream.source.kind == "injection":
            return InjectionOperator(
                self.spec.name,
                NodeName(node.name),
                stream,
                timestamps,
                self.schemas.get(stream.name),
                store,
                now_us,
                self.spec.limits,
                bool(self.outside.ends),
                fellows,
            )
        source = self.built(stream)
        partitions = self._partitions(stream, source)
        form = self.form_of(stream)
        combining = self.fanout.combinings.get(stream.name)
        rules = self.fanout.rules(stream.name)
        parts = SourceParts(
            pipeline=self.spec.name,
            node=NodeName(node.name),
            stream=stream,
            source=source,
            partitions=partitions,
            mine=self._share_of(entry, stream, source, partitions),
            fanout=self.fanout,
            timestamps=timestamps,
            max_records=self.limits.bundle,
            needs=form.needs,
            whole=WholeRecords(stream.fields) if form.whole else None,
            guessed=None if form.inferred is None else GuessedTypes(form.inferred, form.accepts),
            beside=None if form.made is None else self.beside_of(stream, form.made),
            limits=self.spec.limits,
            first_owner=entry.lease.is_first,
            settle_us=self.limits.settle_us,
            to_the_ends=bool(self.outside.ends),
            rules=rules,
            completion=completion_of(shard.outbox, router, rules),
            combining=combining if combining is not None and not combining.rest else None,
            labelled=stream.name in self.labelled,
            chain=chain,
            fellows=fellows,
            first=ReadFirst(self.graph.read_first(node.name)),
        )
        if end is not None:
            return SourceWithSink(parts, store, now_us, end)
        return SourceOperator(parts, store, now_us)

    def held_table(self, spec: ComputationSpec, language: Language) -> HeldTable:
        """The table that this worker holds whole for an enrichment."""
        stream = self.spec.stream(spec.work_as(EnrichSpec).stream)
        source = self.built(stream)
        kept: Callable[[], TableRows] | None = None
        listed = self._partitions(stream, source)
        if self.outside.listed is None and has_kept_rows(stream.source):
            path = rows_file(self.root, stream.name)
            kept = lambda: decode_rows(path.read_bytes())  # noqa: E731
        table = table_source(self.spec, spec, source, listed, language, kept)
        return HeldTable(table, wait_for(f"table {table.name}"))

    def form_of(self, stream: StreamSpec) -> SourceForm:
        """The form in which a stream is read."""
        return source_form(stream, self.graph, self.plans, self.joins)

    def beside_of(
        self, stream: StreamSpec, made_columns: MadeColumns, taken: Collection[str] = ()
    ) -> BesideColumns:
        """How columns are made of the records of a stream, for consumers besides those ``taken``
        care of."""
        consumers = [name for name in self.graph.consumers[stream.name] if name not in taken]
        nodes = made_columns.nodes
        taking, others = (
            self.fanout_of(replace(self.graph, consumers={stream.name: names}))
            for names in (
                tuple(name for name in consumers if name in nodes),
                tuple(name for name in consumers if name not in nodes),
            )
        )
        least, beside = self.limits.columns_from, None
        if made_columns.beside is not None:
            beside = self.beside_of(stream, made_columns.beside, nodes)
        return BesideColumns(made_columns, stream.fields, least, taking, others, beside)

    def _timestamps(self, stream: StreamSpec) -> Timestamps:
        named = ":" in stream.timestamp
        function = self.outside.load(stream.timestamp, self.spec.folder) if named else None
        return Timestamps(stream, function, stream.states_unit)

    def _share_of(
        self,
        entry: ShardEntry,
        stream: StreamSpec,
        source: Source,
        partitions: Callable[[], Sequence[Partition]],
    ) -> Callable[[str], bool]:
        """Whether a partition, by its name, is read by the shard of ``entry``."""
        by_name = not source.bounded or stream.name in self.outside.by_name
        spread = {} if by_name else spread_of(partitions())
        return lambda name: (spread[name] if name in spread else key_hash(name)) in entry.range

    def _partitions(self, stream: StreamSpec, source: Source) -> Callable[[], Sequence[Partition]]:
        if not source.bounded and (ends := self.outside.ends.get(stream.name)) is not None:
            return lambda: ends
        if not source.bounded:
            return source.partitions
        if self.outside.listed is not None:
            listed = self.outside.listed(stream.name, source)
            return lambda: listed
        path = self.root / "inputs" / f"{stream.name}.json"
        names = decode_partitions(path.read_bytes())
        return lambda: names
