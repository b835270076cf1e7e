"""Questions to a pipeline in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from millwheel.connect.own_functions import language_of_queries
from millwheel.core.model.keys import Key
from millwheel.core.model.times import duration_us
from millwheel.core.pipeline.spec import KeptKinds, PipelineSpec
from millwheel.engine.queries.model import Answer, Mode, Query, QueryError
from millwheel.engine.queries.named_queries import formula_asked
from millwheel.engine.queries.names import Catalog, key_in_units, scales_kept, shown_answer
from millwheel.engine.workers.queries.answering import ShardView
from millwheel.engine.workers.shard.shard import Shard
from millwheel.tools.testing.memory.cluster import MemoryCluster


@dataclass(frozen=True, slots=True)
class Question:
    """A test's question. ``indicator`` may be a formula, ``window`` is a duration, ``until`` a time
    in µs."""

    indicator: str
    key: Key
    window: str | int | None = None
    until: int | None = None
    mode: str = "covering"


def ask(
    cluster: MemoryCluster,
    question: Question,
    spec: PipelineSpec,
) -> Answer:
    """The answer of the shard that owns the key, of one of the named queries of the pipeline, or of
    a formula. Raises QueryError."""
    kept = spec.kept
    window_us = None if question.window is None else duration_us(question.window)
    query = Query(question.indicator, question.key, window_us, question.until, Mode(question.mode))
    formula = formula_asked(
        question.indicator, Catalog.of(spec, language_of_queries(spec)).named.formulas, kept
    )
    if formula is not None:
        return formula.result([_answer(cluster, each, kept) for each in formula.questions(query)])
    scales = scales_kept(kept.get(query.computation))
    return shown_answer(_answer(cluster, query, kept), scales)


def _answer(cluster: MemoryCluster, query: Query, kept: Mapping[str, KeptKinds]) -> Answer:
    key = key_in_units(query.key, kept.get(query.computation))
    query = structs.replace(query, key=key).asked_at(cluster.clock.now)
    shard = _shard(cluster, query)
    view = ShardView.of(shard)
    finding = view.answer(query)
    return Answer(
        finding.values,
        finding.covered_start_us,
        finding.covered_end_us,
        view.watermark_us,
        finding.complete,
        shard.identity.shard,
        shard.identity.token,
        view.number,
    )


def _shard(cluster: MemoryCluster, query: Query) -> Shard:
    node = cluster.graph.nodes.get(query.computation)
    if node is None or node.computation is None:
        raise QueryError("unknown_indicator", f"no computation is called {query.computation!r}")
    return cluster.shard_of(query.computation, cluster.graph.hash_of(query.computation)(query.key))
