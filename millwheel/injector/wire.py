"""Between the wire's messages and the machine's words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from millwheel.injector.events import ReportColumns, ReportsArrived, share_columns
from millwheel.injector.state import InjectorState, NodeView
from millwheel.pb import injector_pb2 as pb


def read_frame(connection: int, frame: pb.ReportFrame) -> Iterator[ReportsArrived]:
    """The events of a frame. Raises OverflowError for a token that no master mints (63 bits and more)."""
    for reports in frame.nodes:
        rows = reports.reports
        columns = ReportColumns(
            shards=[row.shard for row in rows],
            tokens=np.array([row.token for row in rows], np.int64),
            watermarks=np.array([row.watermark_us for row in rows], np.int64),
            holders=np.array([row.holder for row in rows], object),
            counters={place: dict(row.counters) for place, row in enumerate(rows) if row.counters},
            shares=share_columns([{each.share: each.watermark_us for each in row.shares} for row in rows]),
        )
        latencies = [sample for row in rows for sample in row.latencies_ms]
        yield ReportsArrived(connection, reports.node, columns, latencies)


def write_status(state: InjectorState) -> pb.StatusReply:
    """The answer to a status call."""
    return pb.StatusReply(
        nodes=[_node_status(view) for view in state.view()], latency_quantiles_ms=state.latencies.quantiles_ms()
    )


def _node_status(view: NodeView) -> pb.NodeStatus:
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
