"""Whether a pipeline has done all that its input asks for: nothing is on its way, and no watermark is either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.watermark import ShardReport, Watermarks
from millwheel.core.pipeline.graph import Graph
from millwheel.injector.events import PublishDue, RangesChanged, ReportColumns, ReportsArrived
from millwheel.injector.state import InjectorState
from millwheel.savepoints.orders import Standing


def has_caught_up(graph: Graph, tables: Sequence[RangeTable], standing: Mapping[str, Standing]) -> bool:
    """Whether, of shards that all stand still, none of a computation would hear of a higher watermark than it has.

    What they report is put together by the rules of the watermark service, so that it does not matter how much of it
    the service itself has heard yet."""
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
    return all(
        standing[entry.shard].heard >= published.lowest_of(graph.feeders[table.computation])
        for table in tables
        if graph.nodes[table.computation].computation is not None
        for entry in table.shards
    )


def counters_of(standing: Mapping[str, Standing], tables: Sequence[RangeTable]) -> dict[str, dict[str, int]]:
    """What all shards have counted, by node."""
    found: dict[str, dict[str, int]] = {}
    for table in tables:
        sums = found.setdefault(table.computation, {})
        for entry in table.shards:
            for name, count in standing[entry.shard].counters.items():
                sums[name] = sums.get(name, 0) + count
    return found
