from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeView, build_graph
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec, SourceSpec, StreamSpec
from millwheel.launch.progress.input_size import Expected
from millwheel.launch.progress.line import (
    ProgressLine,
    RateMeter,
    Speed,
    lag_text,
    left_text,
    progress_text,
)
from tests.computations import computation_spec
from tests.unit.launch.progress.test_summary import graph, view


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


def test_lag_is_how_far_a_computation_is_behind_its_input() -> None:
    text = lag_text(graph(), at(source_hits=100, traffic=98.5, visits=10))
    assert text == "lag traffic 1s, visits 1m30s"
    assert (
        lag_text(graph(), at(source_hits=100, traffic=99.8, visits=100))
        == "lag traffic 0.2s, visits 0.0s"
    )


def two_chains() -> Graph:
    """old → first → second, and new → third; both sources feed a join."""
    keyed = KeySpec(KeyKind.FIELD, ("key",))
    chains = {"first": ("old",), "second": ("first",), "third": ("new",), "join": ("old", "new")}
    return build_graph(
        PipelineSpec(
            name="p",
            streams=tuple(StreamSpec(name, SourceSpec("files", {})) for name in ("old", "new")),
            computations=tuple(
                computation_spec(
                    name, tuple(InputSpec(stream, keyed) for stream in inputs), (name,)
                )
                for name, inputs in chains.items()
            ),
            sinks=(),
            folder="/p",
        )
    )


def of_two_chains(**watermarks: int) -> ClusterView:
    names = {"old": "source.old", "new": "source.new"}
    nodes = [NodeView(names.get(name, name), at, True, "", {}) for name, at in watermarks.items()]
    return ClusterView({node.name: node for node in nodes})


def test_lag_is_against_the_inputs_of_each_computation_whatever_other_sources_say() -> None:
    years = 10**15
    stand = of_two_chains(
        old=100 * SECOND,
        new=years,
        first=90 * SECOND,
        second=90 * SECOND,
        third=years,
        join=100 * SECOND,
    )
    shown = lag_text(two_chains(), stand)
    assert shown.startswith("lag first 10s, second 0.0s, third 0.0s, join ")
    assert "0.0s" not in shown.partition("join ")[2]


def test_an_input_that_has_ended_or_is_idle_says_no_time() -> None:
    stand = of_two_chains(
        old=MAX_TIME,
        new=100 * SECOND,
        first=MAX_TIME,
        second=50,
        third=98 * SECOND,
        join=97 * SECOND,
    )
    assert lag_text(two_chains(), stand) == "lag first done, second finishing, third 2s, join 3s"
    idle = of_two_chains(old=5 * SECOND, new=IDLE_TIME, first=5 * SECOND, third=5, join=4 * SECOND)
    assert lag_text(two_chains(), idle) == "lag first 0.0s, third idle, join 1s"


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
        line.announce("The worker [0] died.")
        with line.hidden():
            pass
    assert said.getvalue().splitlines() == ["at 0.0", "at 5.0", "The worker [0] died."]


def test_bounded_input_has_an_end_that_comes_nearer() -> None:
    assert left_text(500, 250.0, Expected(2_000, True)) == " · 25% of 2,000, 6s left"
    assert left_text(500, 250.0, Expected(2_000, False)) == " · 25% of about 2,000, 6s left"
    assert left_text(500, 0.0, Expected(2_000, True)) == " · 25% of 2,000"
    assert left_text(2_100, 9.0, Expected(2_000, False)) == left_text(5, 9.0, None) == ""


def test_each_node_may_have_a_line() -> None:
    speed = Speed("weblog", graph(), each_node=True)
    head, *lines = speed.text(at(source_hits=100, traffic=70), {}, 1.0).splitlines()
    assert head.startswith("weblog: ")
    assert [line.split()[0] for line in lines] == [
        name for name in graph().nodes if name in view().nodes
    ]
    assert any("lag 30s" in line for line in lines)
    assert "\n" not in Speed("weblog", graph()).text(at(source_hits=100), {}, 1.0)
