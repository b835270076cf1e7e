from __future__ import annotations

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.figures import figures_of
from millwheel.core.metrics import catalogue as c
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND


def test_lag_is_behind_the_clock_and_behind_the_furthest_source() -> None:
    stands = {"source.a": 20, "source.b": 50, "c": 5}
    nodes = [pb.NodeStatus(node=name, watermark_us=at * SECOND) for name, at in stands.items()]
    nodes.append(
        pb.NodeStatus(node="d", watermark_us=MAX_TIME, complete=True, stale_reports=3, silent=2)
    )
    found = {
        (each.metric, *each.values): each.value
        for each in figures_of(pb.StatusReply(nodes=nodes), 60.0)
    }
    assert found[c.NODE_LAG, "c"] == 55.0
    assert found[c.NODE_BEHIND, "c"] == 45.0
    assert found[c.NODE_BEHIND, "source.b"] == 0
    assert (c.NODE_LAG, "d") not in found
    assert (found[c.NODE_DRAINED, "d"], found[c.NODE_DRAINED, "c"]) == (1, 0)
    assert (found[c.REFUSED_REPORTS, "d"], found[c.NODE_SILENT, "d"]) == (3, 2)


def test_without_a_source_at_some_time_nothing_is_behind() -> None:
    nodes = [
        pb.NodeStatus(node="source.a", watermark_us=at) for at in (MIN_TIME, IDLE_TIME, MAX_TIME)
    ]
    nodes.append(pb.NodeStatus(node="c", watermark_us=SECOND))
    assert c.NODE_BEHIND not in {
        each.metric for each in figures_of(pb.StatusReply(nodes=nodes), 60.0)
    }
