"""Where the nodes stand, as figures for ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.core.metrics import catalogue as c
from millwheel.core.metrics.figures import Figure
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND

_SOURCES = "source."


def figures_of(reply: pb.StatusReply, now_s: float) -> Iterator[Figure]:
    """Figures of each node. A watermark that is no time (none yet, idle, drained) has no lag."""
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
