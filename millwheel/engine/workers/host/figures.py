"""Figures of a worker's shards for metrics, read from numbers that the shards keep in any case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from millwheel.core import metrics as c
from millwheel.core.metrics import Figure, Metric
from millwheel.core.model.failures import CHAINED_IN, CHAINED_OUT, KINDS, REPLAYED, by_node
from millwheel.core.model.times import IDLE_TIME, MIN_TIME, SECOND
from millwheel.engine.workers.host.divided_keys import figures_of_divided
from millwheel.engine.workers.loop.shard_handle import Served

_DUPLICATES = "duplicates."
_METRICS = {"records_in": c.RECORDS_IN, "records_out": c.RECORDS_OUT, "late": c.LATE_RECORDS}
_METRICS |= {CHAINED_IN: c.RECORDS_IN, CHAINED_OUT: c.RECORDS_OUT}
_IGNORED = frozenset(("dead_letters",))
"""The sum of the counts by reason."""


def figures_of(served: Iterable[Served], now_us: int) -> list[Figure]:
    """Readings of all metrics of these shards at ``now_us`` (wall clock)."""
    shards = list(served)
    lives = Counter(each.life.value for each in shards)
    figures = [Figure(c.SHARDS, count, (life,)) for life, count in lives.items()]
    for each in shards:
        node, shard = str(each.node), str(each.shard.identity.shard)
        labels = (node, shard)
        counters = by_node(node, each.shard.meta.counters)
        for metric, value, *more in (
            *_served(each, counters[node]),
            *_counted(counters[node]),
            *_standing(each, now_us),
            *_dedup(each),
        ):
            figures.append(Figure(metric, value, (*labels, *more)))
        for name in counters.keys() - {node}:
            for metric, value, *more in _counted(counters[name]):
                figures.append(Figure(metric, value, (name, shard, *more)))
        figures += figures_of_divided(each)
        of = each.shard.operator.figures_of or node
        figures += [
            Figure(own.metric, own.value, (of, shard, *own.values))
            for own in each.shard.operator.figures()
        ]
    return figures


_Row = tuple[Metric, float] | tuple[Metric, float, str]


def _served(served: Served, counters: Mapping[str, int]) -> Iterator[_Row]:
    shard = served.shard
    yield c.COMMITS, shard.commits.durable
    yield c.BUSY_SECONDS, served.done.busy_us / SECOND
    if "records_in" not in counters:
        yield c.RECORDS_IN, served.done.records
    if not counters.keys() & {"records_out", CHAINED_OUT} and shard.meta.next_seq > 1:
        yield c.RECORDS_OUT, shard.meta.next_seq - 1


def _counted(counters: Mapping[str, int]) -> Iterator[_Row]:
    replayed = 0
    for name, value in counters.items():
        if name in _METRICS:
            yield _METRICS[name], value
        elif name.startswith(_DUPLICATES):
            yield c.DUPLICATES, value, name.removeprefix(_DUPLICATES)
        elif name.startswith(KINDS):
            yield c.DEAD_LETTERS, value, name.removeprefix(KINDS)
        elif name.startswith(REPLAYED):
            replayed += value
        elif name not in _IGNORED:
            yield c.USER_COUNTER, value, name
    if replayed:
        yield c.REPLAYED, replayed


def _standing(served: Served, now_us: int) -> Iterator[_Row]:
    shard = served.shard
    watermark_us = served.last.state[0]
    if MIN_TIME < watermark_us < IDLE_TIME:
        yield c.WATERMARK, watermark_us / SECOND
        yield c.WATERMARK_LAG, (now_us - watermark_us) / SECOND
    yield c.INBOX_RECORDS, shard.admission.inbox.records
    yield c.CREDIT_USED, shard.outbox.credit_used()
    yield c.CONGESTED, float(shard.admission.congested())
    yield c.COMMITS_IN_FLIGHT, len(shard.commits.pending)
    yield c.STATE_BYTES, shard.store.size_bytes()
    for domain, timers in shard.admission.timers.items():
        yield c.TIMERS, len(timers), domain.name.lower()


def _dedup(served: Served) -> Iterator[_Row]:
    ids = served.shard.seen_ids
    if ids is not None:
        yield c.DEDUP_IDS, ids.asked
        yield c.DEDUP_DOUBTS, ids.doubted
        yield c.DEDUP_LOOKUPS, ids.checked
        yield c.DEDUP_FILTER_BYTES, ids.filter_bytes
