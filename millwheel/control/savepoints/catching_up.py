"""Decides whether a pipeline has caught up with its input: no record and no watermark is in
flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.control.injector.events import (
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState
from millwheel.control.savepoints.orders import Standing
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME
from millwheel.core.model.watermark import ShardReport, Watermarks
from millwheel.core.pipeline.graph import Graph


def has_caught_up(
    graph: Graph, tables: Sequence[RangeTable], standing: Mapping[str, Standing]
) -> bool:
    """Whether no shard of a computation would get a higher watermark than it has, and every source
    that is read to its end has heard how far the streams are that it meets. All shards stand still.

    Their reports are combined by the rules of the watermark service, so it does not matter how many
    of them the service itself has received."""
    service = InjectorState()
    for table in tables:
        service.handle(RangesChanged(table))
        reports = [
            ShardReport(entry.shard, at.token, at.reports, idle_us=at.idle_us)
            for entry, at in [(entry, standing[entry.shard]) for entry in table.shards]
        ]
        service.handle(ReportsArrived(1, table.computation, ReportColumns.of(reports)))
    service.handle(PublishDue())
    published = Watermarks()
    published.rise(service.published())
    if any(_lags(graph, table, standing, published) for table in tables):
        return False
    return all(
        standing[entry.shard].heard >= published.lowest_of(graph.feeders[table.computation])
        for table in tables
        if graph.nodes[table.computation].computation is not None
        for entry in table.shards
    )


def _lags(
    graph: Graph, table: RangeTable, standing: Mapping[str, Standing], published: Watermarks
) -> bool:
    """Whether a silent source will still follow another one."""
    stream = graph.nodes[table.computation].stream
    reports = [standing[entry.shard] for entry in table.shards]
    if (
        stream is None
        or stream.idle_after_us is None
        or any(at.reports != IDLE_TIME for at in reports)
    ):
        return False
    return max(at.idle_us for at in reports) < published.furthest_of(
        graph.fellows(table.computation)
    )


def counters_of(
    standing: Mapping[str, Standing], tables: Sequence[RangeTable]
) -> dict[str, dict[str, int]]:
    """The counters of all shards, summed by node."""
    by_node: dict[str, dict[str, int]] = {}
    for table in tables:
        sums = by_node.setdefault(table.computation, {})
        for entry in table.shards:
            for name, count in standing[entry.shard].counters.items():
                sums[name] = sums.get(name, 0) + count
    return by_node
