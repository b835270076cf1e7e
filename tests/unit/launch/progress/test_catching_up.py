"""When nothing is left to do, of what each shard says that it has heard and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.control.savepoints.orders import Standing
from millwheel.core.model.names import NodeName, Token
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeView, build_graph
from millwheel.language.spec import load_pipeline
from millwheel.launch.progress.catching_up import CatchingUp, counters_of, has_caught_up

TEXT = """
pipeline: p
streams:
  s: {source: {injection: {}}, timestamp: t}
computations:
  c: {input: {s: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, output: o}
sinks:
  o: {stdout: {}}
"""

TWO = """
pipeline: p
streams:
  s: {source: {injection: {}}, timestamp: t}
  r: {source: {injection: {}}, timestamp: t}
computations:
  c: {input: {s: {key: k}, r: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, output: o}
sinks:
  o: {stdout: {}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "p.yaml").write_text(TEXT)
    return build_graph(load_pipeline(str(tmp_path / "p.yaml"), {}))


def tables(graph: Graph) -> list[RangeTable]:
    return [
        RangeTable(
            NodeName(node),
            tuple(ShardEntry(f"{node}-{n}", keys, "w", Token(1)) for n, keys in enumerate(tile(2))),
            1,
        )
        for node in graph.nodes
    ]


def standing(graph: Graph, heard: int, second: Standing) -> dict[str, Standing]:
    """All shards; the sources are idle, the first one at 50."""
    found = {
        entry.shard: Standing(Token(1), 4, 0, heard, heard)
        for t in tables(graph)
        for entry in t.shards
    }
    found["source.s-0"] = Standing(Token(1), 4, 0, 0, IDLE_TIME, 50, {"records_in": 2})
    found["source.s-1"] = second
    return found


def test_all_is_done_when_each_computation_has_heard_how_far_its_sources_are(graph: Graph) -> None:
    idle = Standing(Token(1), 9, 0, 0, IDLE_TIME, 70, {"records_in": 3})
    assert not has_caught_up(graph, tables(graph), standing(graph, 50, idle))
    assert has_caught_up(graph, tables(graph), standing(graph, 70, idle))
    live = Standing(Token(1), 9, 0, 0, 20)
    assert has_caught_up(graph, tables(graph), standing(graph, 20, live))


def test_a_silent_source_must_have_heard_how_far_the_streams_are_that_it_meets(
    tmp_path: Path,
) -> None:
    """Otherwise the windows that the run closes would depend on what the source had heard when all
    else was done."""
    (tmp_path / "p.yaml").write_text(TWO)
    graph = build_graph(load_pipeline(str(tmp_path / "p.yaml"), {}))
    idle = Standing(Token(1), 9, 0, 0, IDLE_TIME, 70, {})
    found = standing(graph, 70, idle)
    for number, idle_us in ((0, 40), (1, 60)):
        found[f"source.r-{number}"] = Standing(Token(1), 4, 0, 0, IDLE_TIME, idle_us, {})
    assert not has_caught_up(graph, tables(graph), found)
    found["source.r-1"] = idle
    assert has_caught_up(graph, tables(graph), found)


def test_what_shards_have_counted_is_summed_by_node(graph: Graph) -> None:
    idle = Standing(Token(1), 9, 0, 0, IDLE_TIME, 70, {"records_in": 3})
    assert counters_of(standing(graph, 70, idle), tables(graph))["source.s"] == {"records_in": 5}


# What a run that has caught up reports.


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
