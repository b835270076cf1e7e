"""How many records were late in the last hour, from counters that only grow."""

from __future__ import annotations

from pathlib import Path

from millwheel.core.pipeline.graph import ClusterView, NodeView, build_graph
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.launch.progress.late_hour import LateHour, LateStream, too_late

PIPELINE = """
pipeline: late
streams:
  hits: {source: {injection: {}}, timestamp: at, watermark: {max_delay: 30s}}
computations:
  counts: {input: {hits: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, output: counts}
sinks: {counts: {stdout: {}}}
"""


def view(records: int, late: int, complete: bool = True) -> ClusterView:
    counters = {"records_in": records, "late": late}
    node = NodeView("source.hits", 0, complete, "", counters)
    return ClusterView(
        {"source.hits": node, "counts": NodeView("counts", 0, True, "", {"late": 7})}
    )


def test_what_was_read_before_the_last_hour_does_not_count() -> None:
    hour = LateHour()
    hour.note(None, 0.0)
    assert hour.streams() == ()
    for minute in range(200):
        hour.note(view(1_000 * minute, minute if minute < 100 else 100), 60.0 * minute)
    assert hour.streams() == (LateStream("hits", 60_000, 0),)
    for minute in range(200, 230):
        hour.note(view(1_000 * minute, 100 + 2 * (minute - 199)), 60.0 * minute)
    [stream] = hour.streams()
    assert (stream, stream.share) == (LateStream("hits", 60_000, 60), 0.001)


def test_a_minute_has_one_reading_and_the_newest_counts_at_once() -> None:
    hour = LateHour()
    for second in range(30):
        hour.note(view(100 * second, second), float(second))
    assert hour.streams() == (LateStream("hits", 2_900, 29),)
    assert len(hour._readings) == 1


def test_an_injector_that_knows_a_part_is_not_believed() -> None:
    hour = LateHour()
    hour.note(view(500, 5), 0.0)
    hour.note(view(1_000, 10), 100.0)
    hour.note(view(3, 0, complete=False), 200.0)
    assert hour.streams() == (LateStream("hits", 500, 5),)


def test_a_sentence_says_what_helps_and_nothing_is_said_of_what_is_usual(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    assert list(too_late(graph, [LateStream("hits", 100_000, 1), LateStream("hits", 0, 0)])) == []
    assert list(too_late(graph, [LateStream("hits", 1_000, 8)])) == [
        "stream hits: 0.800% of the last hour's records came too late (8 of 1,000) for"
        " max_delay 30s; `millwheel lateness` suggests a longer one"
    ]
