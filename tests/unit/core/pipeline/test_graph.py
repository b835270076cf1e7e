from __future__ import annotations

from dataclasses import replace

from millwheel.core.pipeline.graph import Graph, NodeKind, build_graph
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    UpsertSpec,
)
from millwheel.core.pipeline.tables import tabled
from millwheel.core.pipeline.work import EnrichSpec, SlicesSpec, WindowSpec
from millwheel.core.slices.slots import WIDTH, slot_hash
from tests.computations import changed, computation_spec

BY_PATH = KeySpec(KeyKind.FIELD, ("path",))


def pipeline(*sinks: str, late: str = "drop") -> PipelineSpec:
    streams = (StreamSpec("hits", SourceSpec("files"), timestamp="ts"), StreamSpec("per_minute"))
    traffic = computation_spec(
        "traffic",
        (InputSpec("hits", BY_PATH),),
        ("per_minute",),
        window=WindowSpec("global"),
        late=late,
    )
    spikes = computation_spec(
        "spikes", (InputSpec("per_minute", BY_PATH), InputSpec("hits", BY_PATH)), ("alerts",)
    )
    return PipelineSpec(
        "web",
        streams,
        (traffic, spikes),
        tuple(SinkSpec(name, "files") for name in sinks),
        "/nowhere",
    )


def test_sources_computations_and_sinks_are_nodes_by_name() -> None:
    graph = build_graph(pipeline("alerts"))
    kinds = {name: node.kind for name, node in graph.nodes.items()}
    assert kinds == {
        "source.hits": NodeKind.SOURCE,
        "traffic": NodeKind.COMPUTATION,
        "spikes": NodeKind.COMPUTATION,
        "sink.alerts": NodeKind.SINK,
    }


def test_consumers_and_feeders_are_both_ends_of_the_same_edges() -> None:
    graph = build_graph(pipeline("alerts", "per_minute"))
    assert graph.consumers["hits"] == ("traffic", "spikes")
    assert graph.consumers["per_minute"] == ("spikes", "sink.per_minute")
    assert graph.feeders["traffic"] == ("source.hits",)
    assert graph.feeders["spikes"] == ("source.hits", "traffic")
    assert graph.feeders["source.hits"] == ()


def test_everybody_may_feed_the_dead_letters_but_nobody_feeds_itself() -> None:
    graph = build_graph(pipeline(DEAD_LETTERS))
    assert set(graph.feeders[f"sink.{DEAD_LETTERS}"]) == {"source.hits", "traffic", "spikes"}
    spec = pipeline()
    watcher = computation_spec("watcher", (InputSpec(DEAD_LETTERS, BY_PATH),), ("alarms",))
    graph = build_graph(
        PipelineSpec("web", spec.streams, (*spec.computations, watcher), (), "/nowhere")
    )
    assert set(graph.feeders["watcher"]) == {"source.hits", "traffic", "spikes"}


def test_dead_letters_feed_nobody_who_does_not_ask_for_them() -> None:
    graph = build_graph(pipeline("alerts"))
    assert DEAD_LETTERS not in graph.consumers
    assert graph.feeders["sink.alerts"] == ("spikes",)


def test_late_records_sent_aside_are_an_output() -> None:
    graph = build_graph(pipeline("stragglers", late="side:stragglers"))
    assert "stragglers" in graph.nodes["traffic"].outputs
    assert graph.feeders["sink.stragglers"] == ("traffic",)


def test_a_sink_takes_the_key_that_the_producer_gave() -> None:
    graph = build_graph(pipeline("alerts"))
    assert graph.nodes["sink.alerts"].inputs == (InputSpec("alerts", KeySpec(KeyKind.RECORD)),)


def test_a_circle_holds_the_nodes_on_the_ways_back_and_nobody_else() -> None:
    def computation(name: str, *streams: str) -> ComputationSpec:
        inputs = tuple(InputSpec(stream, KeySpec(KeyKind.RECORD)) for stream in streams)
        return computation_spec(name, inputs, (f"{name}_out",), callback="m:C")

    spec = PipelineSpec(
        "p",
        (StreamSpec("in", SourceSpec("files")),),
        (
            computation("own", "in", "own_out"),
            computation("there", "own_out", "back_out"),
            computation("back", "there_out"),
            computation("after", "back_out"),
        ),
        (SinkSpec("after_out", "files"),),
        "/",
    )
    graph = build_graph(spec)
    assert graph.circle("own") == {"own"}
    assert graph.circle("there") == graph.circle("back") == {"there", "back"}
    assert (
        graph.circle("after")
        == graph.circle("source.in")
        == graph.circle("sink.after_out")
        == frozenset()
    )
    below = {"source.in": 0, "own": 1, "there": 2, "back": 2, "after": 3, "sink.after_out": 4}
    assert graph.depths() == below


def test_the_roots_of_a_node_are_the_sources_before_it() -> None:
    graph = build_graph(pipeline("alerts"))
    assert graph.roots("sink.alerts") == graph.roots("traffic") == {"source.hits"}
    assert graph.roots("source.hits") == frozenset()


def test_a_sink_has_as_many_shards_as_the_computation_that_feeds_it_alone() -> None:
    spec = pipeline("alerts")
    asking = replace(
        spec, computations=tuple(replace(each, shards=3) for each in spec.computations)
    )
    assert build_graph(asking).shards("sink.alerts") == build_graph(asking).shards("traffic") == 3
    assert build_graph(asking).shards("source.hits") is None
    assert build_graph(spec).shards("sink.alerts") is None
    letters = replace(asking, sinks=(*asking.sinks, SinkSpec("dead_letters", "files")))
    assert build_graph(letters).shards("sink.dead_letters") is None, "everybody feeds it"


def test_only_slices_are_hashed_by_slots_and_never_cut_inside_one() -> None:
    spec = pipeline("alerts")
    traffic, spikes = spec.computations
    graph = build_graph(
        replace(
            spec, computations=(changed(traffic, window=None, slices=SlicesSpec((1,), 10)), spikes)
        )
    )
    assert graph.hash_of("traffic") is slot_hash
    assert [graph.grain(node) for node in ("traffic", "spikes", "source.hits", "unknown")] == [
        WIDTH,
        1,
        1,
        1,
    ]


def test_a_consumer_of_dead_letters_does_not_wait_for_the_sink_that_it_feeds() -> None:
    """The sink may refuse records, which become dead letters: that would be a circle."""
    telling = computation_spec(
        "telling", (InputSpec(DEAD_LETTERS, KeySpec(KeyKind.RECORD)),), outputs=("told",)
    )
    refusing = SinkSpec("told", "kafka")
    spec = replace(
        pipeline(), computations=(telling,), sinks=(refusing, SinkSpec(DEAD_LETTERS, "files"))
    )
    graph = build_graph(spec)
    assert "sink.told" not in graph.feeders["telling"]
    assert "sink.told" in graph.feeders["sink.dead_letters"]


def with_tables(*enriched: tuple[str, str, str], kind: str = "files", **times: str) -> Graph:
    """The graph of a pipeline with the streams a, b and c, of which those without a time are
    tables; of each (stream, table, output) an enrichment."""
    streams = [
        StreamSpec(
            name,
            SourceSpec(kind),
            timestamp=times.get(name, ""),
            table=None if name in times else UpsertSpec(BY_PATH),
        )
        for name in "abc"
    ]
    computations = [
        ComputationSpec(
            f"enrich_{output}",
            (InputSpec(stream, BY_PATH), InputSpec(table, BY_PATH)),
            (output,),
            EnrichSpec(table, table),
        )
        for stream, table, output in enriched
    ]
    return build_graph(
        tabled(PipelineSpec("p", tuple(streams), tuple(computations), (), "/nowhere"))
    )


def firsts(graph: Graph) -> dict[str, set[str]]:
    return {name: first for name in graph.nodes if (first := set(graph.read_first(name)))}


def test_the_tables_that_records_are_enriched_with_are_read_before_their_source() -> None:
    graph = with_tables(("a", "b", "x"), ("x", "c", "y"), a="ts")
    assert firsts(graph) == {
        "source.a": {"source.events.b", "source.events.c"},
        "enrich_x": {"source.events.b"},
        "enrich_y": {"source.events.c"},
    }


def test_a_table_that_is_enriched_with_another_is_read_behind_it() -> None:
    graph = with_tables(("a", "b", "x"), ("b", "c", "y"), a="ts")
    assert graph.read_first("source.events.b") == {"source.events.c"}


def test_sources_of_tables_that_would_wait_for_each_other_do_not() -> None:
    graph = with_tables(("a", "b", "x"), ("b", "c", "y"), ("c", "b", "z"), ("b", "b", "w"), a="ts")
    assert firsts(graph) == {
        "source.a": {"source.events.b"},
        "enrich_x": {"source.events.b"},
        "enrich_y": {"source.events.c"},
        "enrich_z": {"source.events.b"},
        "enrich_w": {"source.events.b"},
    }


def test_no_source_waits_for_a_table_with_times() -> None:
    assert firsts(with_tables(("a", "b", "x"), a="ts", b="ts")) == {}
