"""What a run that has caught up reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.cluster_view import ClusterView, NodeView
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec import load_pipeline
from millwheel.launch.progress.catching_up import CatchingUp
from tests.unit.control.savepoints.test_catching_up import TEXT


def test_the_counters_of_a_run_are_those_of_where_all_shards_stand(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TEXT)
    graph = build_graph(load_pipeline(str(tmp_path / "p.yaml"), {}))
    nothing: Any = None
    run = CatchingUp(graph, nothing, nothing)
    latest = ClusterView({"c": NodeView("c", 7, True, "", {"records_in": 1})}, (2.5,))
    assert run.view(latest) is None
    run._counters = {"c": {"records_in": 9}, "source.s": {"records_in": 9}}
    stands = run.view(latest)
    assert stands is not None
    assert stands.nodes["c"] == NodeView("c", 7, True, "", {"records_in": 9})
    assert stands.nodes["source.s"] == NodeView("source.s", MIN_TIME, True, "", {"records_in": 9})
    assert stands.latency_ms == (2.5,)
    assert not stands.drained(graph)
