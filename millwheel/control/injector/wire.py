"""Conversion between protobuf messages and the machine's events and views, and figures for
``/metrics``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.events import (
    Event,
    Longs,
    NumbersReported,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState, WatermarkView
from millwheel.core import metrics as c
from millwheel.core.metrics import Figure
from millwheel.core.model.failures import CallKind, Tally
from millwheel.core.model.names import NodeName, ShardName
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND

_MAX_NUMBER = 1 << 22
"""Above the number of shards of one node on any worker. Bounds the memory that a reported number
can allocate."""


def read_frame(connection: int, frame: pb.ReportFrame) -> Iterator[Event]:
    """The events of a frame. Raises ValueError or InvariantError for a frame that no worker
    sends."""
    for reports in frame.nodes:
        if reports.shards:
            yield _spelled_out(connection, reports)
        if reports.changed_numbers:
            yield _changed(connection, reports)


def _spelled_out(connection: int, reports: pb.Reports) -> ReportsArrived:
    columns = ReportColumns(
        shards=list(map(ShardName, reports.shards)),
        tokens=_longs(reports.tokens),
        watermarks=_longs(reports.watermarks_us),
        holders=np.array(list(reports.holders), object),
        counters={totals.place: dict(totals.counters) for totals in reports.totals},
        shares={each.share: _longs(each.watermarks_us) for each in reports.shares},
        idle=_longs(reports.idle_us),
    )
    if max(columns.counters, default=0) >= len(columns.shards):
        raise ValueError(f"totals of report {max(columns.counters)} among {len(columns.shards)}")
    numbers = _longs(reports.numbers)
    if max(reports.numbers, default=0) >= _MAX_NUMBER:
        raise ValueError(
            f"a shard has the number {max(reports.numbers)}; no worker has so many of one node"
        )
    return ReportsArrived(
        connection, NodeName(reports.node), columns, list(reports.latencies_ms), numbers
    )


def _longs(column: Collection[int]) -> Longs:
    return np.fromiter(column, np.int64, len(column))


def _changed(connection: int, reports: pb.Reports) -> NumbersReported:
    numbers = np.frombuffer(reports.changed_numbers, "<u4").astype(np.int64)
    watermarks = np.frombuffer(reports.changed_watermarks_us, "<i8").astype(np.int64, copy=False)
    return NumbersReported(connection, NodeName(reports.node), numbers, watermarks)


def tally_messages(tallies: Mapping[str, Mapping[CallKind, Tally]]) -> list[pb.Tally]:
    """Tallies of nodes as messages."""
    return [
        pb.Tally(
            node=node, judged=call.judged, what=call.what, tried=tally.tried, failed=tally.failed
        )
        for node, by_call in tallies.items()
        for call, tally in by_call.items()
    ]


def write_status(state: InjectorState) -> pb.StatusReply:
    """The answer to a status call."""
    return pb.StatusReply(
        nodes=[_node_status(view) for view in state.view()],
        latency_quantiles_ms=state.latencies.quantiles_ms(),
    )


def _node_status(view: WatermarkView) -> pb.NodeStatus:
    return pb.NodeStatus(
        node=view.node,
        watermark_us=view.watermark_us,
        complete=view.complete,
        holder_shard=view.holder_shard,
        holder=view.holder,
        counters=view.counters,
        silent_shards=view.silent_shards,
        silent=view.silent,
        stale_reports=view.stale_reports,
        lower_reports=view.lower_reports,
    )


_SOURCES = "source."


def figures_of(reply: pb.StatusReply, now_s: float) -> Iterator[Figure]:
    """Figures of each node. A watermark that is not a time (none yet, idle, drained) has no lag."""
    times_us = [node.watermark_us for node in reply.nodes if node.node.startswith(_SOURCES)]
    front_us = max((us for us in times_us if MIN_TIME < us < IDLE_TIME), default=None)
    for node in reply.nodes:
        name, watermark_us = (node.node,), node.watermark_us
        yield Figure(c.NODE_SILENT, node.silent, name)
        yield Figure(c.NODE_DRAINED, float(node.complete and watermark_us == MAX_TIME), name)
        yield Figure(c.REFUSED_REPORTS, node.stale_reports, name)
        if MIN_TIME < watermark_us < IDLE_TIME:
            yield Figure(c.NODE_WATERMARK, watermark_us / SECOND, name)
            yield Figure(c.NODE_LAG, now_s - watermark_us / SECOND, name)
            if front_us is not None:
                yield Figure(c.NODE_BEHIND, max(0, front_us - watermark_us) / SECOND, name)
