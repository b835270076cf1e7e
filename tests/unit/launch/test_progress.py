from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from millwheel.core.times import MAX_TIME, MIN_TIME, SECOND
from millwheel.launch.progress import ProgressLine, RateMeter, lag_text, progress_text
from millwheel.launch.summary import ClusterView
from tests.unit.launch.test_summary import graph, view


def at(**watermarks_s: float) -> ClusterView:
    """The nodes with these watermarks, in seconds; "source_hits" stands for "source.hits"."""
    nodes = {name: replace(node, watermark_us=MIN_TIME) for name, node in view().nodes.items()}
    for name, seconds in watermarks_s.items():
        node = name.replace("_", ".", 1) if name.startswith(("source_", "sink_")) else name
        nodes[node] = replace(nodes[node], watermark_us=round(seconds * SECOND))
    return ClusterView(nodes)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    meter = RateMeter()
    assert meter.add(0.0, 0) == 0.0
    assert meter.add(1.0, 100) == 100.0
    for second in range(2, 20):
        rate = meter.add(float(second), 100 + (second - 1) * 10)
    assert rate == 10.0


def test_lag_is_how_far_a_computation_is_behind_the_source() -> None:
    text = lag_text(graph(), at(source_hits=100, traffic=98.5, visits=10))
    assert text == "lag traffic 1s, visits 1m30s"
    assert lag_text(graph(), at(source_hits=100, traffic=99.8, visits=100)) == "lag traffic 0.2s, visits 0.0s"


def test_what_is_not_known_yet_is_said() -> None:
    assert lag_text(graph(), at()) == "no watermark yet"
    assert lag_text(graph(), ClusterView({})) == "no watermark yet"
    assert "visits ?" in lag_text(graph(), at(source_hits=100, traffic=1))
    assert progress_text("p", graph(), None, 0.0, {}) == "p: starting"


def test_at_the_end_it_says_who_is_not_finished() -> None:
    nodes = {name: replace(node, watermark_us=MAX_TIME) for name, node in view().nodes.items()}
    assert lag_text(graph(), ClusterView(nodes)) == "drained"
    nodes["sink.out"] = replace(nodes["sink.out"], watermark_us=5)
    assert lag_text(graph(), ClusterView(nodes)) == "input read, finishing sink.out"


def test_records_are_those_of_the_sources_and_restarts_are_shown() -> None:
    shown = view(source_hits={"records_in": 1234}, traffic={"records_in": 99})
    text = progress_text("weblog", graph(), shown, 50.4, {"worker 0": 1, "master": 1})
    assert text == "weblog: 1,234 records · 50/s · drained · 2 restarts"


def test_without_a_terminal_a_line_is_printed_every_few_seconds_and_sentences_at_once() -> None:
    said = io.StringIO()
    with ProgressLine(Console(file=said, width=200)) as line:
        for tenth in range(100):
            line.show(f"at {tenth / 10}", tenth / 10)
        line.say("The worker [0] died.")
        with line.hidden():
            pass
    assert said.getvalue().splitlines() == ["at 0.0", "at 5.0", "The worker [0] died."]
