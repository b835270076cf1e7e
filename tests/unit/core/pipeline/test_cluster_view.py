"""Whether a pipeline has drained."""

from __future__ import annotations

from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.cluster_view import ClusterView, NodeView
from tests.unit.launch.progress.test_summary import graph, view


def test_the_graph_has_drained_when_every_node_has_and_every_range_says_so() -> None:
    assert view().drained(graph())
    for change in (
        NodeView("traffic", MAX_TIME - 1, True, "", {}),
        NodeView("traffic", MAX_TIME, False, "", {}),
    ):
        nodes = {**view().nodes, "traffic": change}
        assert not ClusterView(nodes).drained(graph())
    missing = {name: node for name, node in view().nodes.items() if name != "sink.out"}
    assert not ClusterView(missing).drained(graph())
