from __future__ import annotations

import json

from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeView, build_graph
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.launch.progress.summary import summarize
from tests.computations import computation_spec


def graph() -> Graph:
    """hits → (traffic, visits) → files, with dead letters."""
    hits = (InputSpec("hits", KeySpec(KeyKind.FIELD, ("path",))),)
    return build_graph(
        PipelineSpec(
            name="weblog",
            streams=(StreamSpec("hits", SourceSpec("files", {})),),
            computations=(
                computation_spec("traffic", hits, ("out",)),
                computation_spec("visits", hits, ("out",)),
            ),
            sinks=(
                SinkSpec("out", "files", {"path": "/o"}),
                SinkSpec(DEAD_LETTERS, "files", {"path": "/d"}),
            ),
            folder="/p",
        )
    )


def view(**counters: dict[str, int]) -> ClusterView:
    names = {
        "source_hits": "source.hits",
        "sink_out": "sink.out",
        "sink_dead": f"sink.{DEAD_LETTERS}",
    }
    all_names = ("source_hits", "traffic", "visits", "sink_out", "sink_dead")
    nodes = [NodeView(names.get(n, n), MAX_TIME, True, "", counters.get(n, {})) for n in all_names]
    return ClusterView({node.name: node for node in nodes}, (1.0, 2.0, 3.0, 4.0))


def test_each_number_comes_from_the_nodes_that_count_it() -> None:
    summary = summarize(
        graph(),
        view(
            source_hits={"records_in": 100, "late": 3, "dead_letters": 2},
            traffic={"records_in": 95, "duplicates.hits": 5, "late": 1},
            visits={"duplicates.hits": 5, "dead_letters": 1},
            sink_out={"records_out": 60, "records_in": 60},
            sink_dead={"records_out": 3},
        ),
        2.0,
        {"worker 0": 1},
    )
    assert (summary.records_in, summary.records_out) == (100, 60)
    assert (summary.duplicates, summary.late, summary.dead_letters) == (5, 4, 3)
    assert (summary.seconds, summary.rate) == (2.0, 50.0)
    assert summary.latency_ms == {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0}
    assert summary.outputs == {"out": "/o", DEAD_LETTERS: "/d"}
    assert summary.restarts == {"worker 0": 1}
    assert json.loads(json.dumps(summary.to_json()))["nodes"]["traffic"]["late"] == 1


def test_duplicates_that_only_one_of_two_consumers_saw_count_once() -> None:
    summary = summarize(
        graph(), view(traffic={"duplicates.hits": 5}, visits={"duplicates.hits": 2}), 1.0, {}
    )
    assert summary.duplicates == 5


def test_a_run_of_no_time_has_no_rate() -> None:
    assert summarize(graph(), view(), 0.0, {}).rate == 0.0
