"""Questions to a pipeline in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millwheel.core.model.keys import Key
from millwheel.core.model.times import duration_us
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.formulas import NamedFormula, formula_asked
from millwheel.engine.queries.model import Answer, Mode, Query, QueryError
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


def ask(cluster: MemoryCluster, question: Question, queries: Sequence[QuerySpec] = ()) -> Answer:
    """The answer of the shard that owns the key, of one of the named ``queries``, or of a formula.
    Raises QueryError."""
    window_us = None if question.window is None else duration_us(question.window)
    query = Query(question.indicator, question.key, window_us, question.until, Mode(question.mode))
    formula = formula_asked(
        question.indicator, {each.name: NamedFormula.of(each) for each in queries}
    )
    if formula is None:
        return _answer(cluster, query)
    return formula.result([_answer(cluster, each) for each in formula.questions(query)])


def _answer(cluster: MemoryCluster, query: Query) -> Answer:
    query = query.asked_at(cluster.clock.now)
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
