from __future__ import annotations

from dataclasses import replace

from millwheel.core.model.failures import CallKind, Tally
from millwheel.core.model.names import NodeName
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.graph import ClusterView
from millwheel.launch.progress.run_standing import (
    ExposedHost,
    HeldBy,
    NodeStanding,
    RunStanding,
    WorkerStanding,
    exposed,
    failing,
    held_by,
    in_words,
    node_standings,
    troubles_of,
    watermark_words,
)
from tests.rooms import HOUSE
from tests.unit.engine.workers.loop.stand import table
from tests.unit.launch.progress.test_summary import graph, view

WORKER = WorkerStanding("w0-1", 0, "h:1", 8, True)


def test_watermarks_are_told_as_times_or_what_they_mean() -> None:
    assert watermark_words(MIN_TIME) == "nothing yet"
    assert watermark_words(MAX_TIME) == "drained"
    assert watermark_words(IDLE_TIME) == "idle"
    assert watermark_words(1_767_225_600_123_456) == "2026-01-01 00:00:00.123Z"
    assert watermark_words(-1_000_000) == "1969-12-31 23:59:59.000Z"
    assert watermark_words(2**62) == f"{2**62} µs"


def standing_at(**held: tuple[int, str]) -> ClusterView:
    """The nodes at these seconds, held by these; all others are drained."""
    nodes = dict(view().nodes)
    for name, (seconds, holder) in held.items():
        node = name.replace("_", ".", 1)
        nodes[node] = replace(nodes[node], watermark_us=seconds * SECOND, holder=holder)
    return ClusterView(nodes)


def test_who_waits_for_input_is_held_by_what_holds_the_furthest_node_above() -> None:
    silent = "source.hits-3: partition b.jsonl: nothing read from it yet"
    stands = standing_at(
        source_hits=(5, silent), traffic=(5, "traffic-1: input"), sink_out=(5, "sink.out-0: input")
    )
    held = HeldBy("source.hits", "source.hits-3", "partition b.jsonl: nothing read from it yet")
    assert {held_by(graph(), stands, name) for name in ("source.hits", "traffic", "sink.out")} == {
        held
    }
    assert held_by(graph(), stands, "visits") is None


def test_a_timer_is_told_with_its_key_and_time() -> None:
    stands = standing_at(traffic=(5, "traffic-1: timer 'wake' of key ('u', 7) at 1767225600000000"))
    held = held_by(graph(), stands, "traffic")
    assert held is not None
    assert held.words == "timer 'wake' of key ('u', 7) at 2026-01-01 00:00:00.000Z"
    assert in_words("partition 7 at 12") == "partition 7 at 12"


def test_a_node_that_is_behind_says_by_how_much_and_who_holds_it() -> None:
    away = "sink batch 3, not yet published: connection refused"
    stands = standing_at(
        source_hits=(95, "source.hits-0: position 3"), sink_out=(5, f"sink.out-1: {away}")
    )
    nodes = node_standings(graph(), stands, {}, [])
    assert {node.node: node.behind_s for node in nodes}["sink.out"] == 90.0
    [trouble] = troubles_of(nodes, [WORKER])
    assert trouble == f"sink.out is 1m30s behind, held by sink.out-1: {away}"


def test_a_silent_partition_is_told_as_the_cause_once_for_all_nodes_below_it() -> None:
    silent = "source.hits-3: partition b.jsonl: nothing read from it yet"
    below = dict.fromkeys(("traffic", "visits", "sink_out"), (MIN_TIME // SECOND, "x-0: input"))
    stands = standing_at(source_hits=(MIN_TIME // SECOND, silent), **below)
    starting = {name: replace(node, watermark_us=MIN_TIME) for name, node in stands.nodes.items()}
    troubles = list(troubles_of(node_standings(graph(), ClusterView(starting), {}, []), [WORKER]))
    assert troubles == [
        "source.hits has no watermark yet, held by source.hits-3: partition b.jsonl: nothing read"
        " from it yet"
    ]


def test_a_sink_that_is_away_is_told_although_nothing_is_behind() -> None:
    words = "sink.out-0: sink batch 7, not yet published: Connection refused"
    stands = standing_at(
        source_hits=(95, "source.hits-0: production"), traffic=(95, "input"), sink_out=(95, words)
    )
    [trouble] = troubles_of(node_standings(graph(), stands, {}, []), [WORKER])
    told = "sink batch 7, not yet published: Connection refused"
    assert trouble == f"sink.out waits for its target, held by sink.out-0: {told}"


def test_a_held_timer_is_told_as_the_cause_with_its_key_and_time() -> None:
    timer = "traffic-1: timer 'wake' of key ('u', 7) at 1767225600000000"
    stands = standing_at(source_hits=(95, "source.hits-0: position 3"), traffic=(5, timer))
    [trouble] = troubles_of(node_standings(graph(), stands, {}, []), [WORKER])
    told = "timer 'wake' of key ('u', 7) at 2026-01-01 00:00:00.000Z"
    assert trouble == f"traffic is 1m30s behind, held by traffic-1: {told}"


def test_a_call_that_does_not_return_is_told_with_its_key_and_line() -> None:
    stuck = WorkerStanding(
        "w0-1",
        0,
        "h:1",
        8,
        True,
        12.34,
        "slow.py:12 in process_record",
        ("record of key 'x' in c-0",),
    )
    gone = WorkerStanding("w1-1", 1, "h:2", 8, False)
    said = list(troubles_of((), [stuck, gone]))
    assert said == [
        (
            "w0-1 has been in one step for 12.3 s: record of key 'x' in c-0, at slow.py:12 in"
            " process_record"
        ),
        "w1-1 (slot 1) does not answer",
    ]


def test_a_worker_that_is_slow_or_has_little_memory_left_is_told() -> None:
    slow = WorkerStanding("w0-1", 0, "h:1", 8, True, weight=2, slowness=4.04, memory=0.2)
    full = WorkerStanding("w1-1", 1, "h:2", 8, True, memory=0.913)
    assert list(troubles_of((), [slow, full, WORKER])) == [
        "w0-1 takes 4.0 times as long as the others: its weight of 2 counts as 0.5",
        "w1-1 has 91% of its memory in use",
    ]


def test_states_of_nodes_and_shards_without_an_owner() -> None:
    times = {"source.hits": IDLE_TIME, "traffic": MIN_TIME, "visits": MAX_TIME}
    nodes = {
        name: replace(node, watermark_us=times.get(name, 7)) for name, node in view().nodes.items()
    }
    tables = {NodeName("traffic"): table("traffic", ("w0-1", 1), ("dead", 1))}
    found = {
        each.node: each for each in node_standings(graph(), ClusterView(nodes), tables, ["w0-1"])
    }
    assert [found[name].state for name in times] == ["idle", "starting", "drained"]
    assert (found["traffic"].shards, found["traffic"].unowned, found["traffic"].watermark) == (
        2,
        1,
        None,
    )
    assert "traffic: 1 of 2 shards have no owner" in list(troubles_of([found["traffic"]], [WORKER]))


def test_calls_that_fail_are_told() -> None:
    nodes = dict(view().nodes)
    nodes["traffic"] = replace(
        nodes["traffic"], tallies={CallKind("traffic", "record"): Tally(100, 3)}
    )
    assert list(failing(ClusterView(nodes))) == ["traffic: 3 of its last 100 calls failed (record)"]


def test_nobody_is_behind_while_all_flow() -> None:
    held = HeldBy("c", "c-0", "input")
    node = NodeStanding("c", "computation", "flowing", "t", 5, 0.4, held, 1, 0, {}, {})
    assert not list(troubles_of([node], [WORKER]))


def test_the_page_has_every_field_of_the_json() -> None:
    page = (HOUSE / "docs" / "commands.md").read_text(encoding="utf-8")
    fields = {
        field
        for struct in (RunStanding, NodeStanding, WorkerStanding, HeldBy)
        for field in struct.__struct_fields__
    }
    assert not [field for field in fields if f"`{field}`" not in page]


def test_a_host_that_may_not_die_is_named_with_the_spares_that_would_cover_it() -> None:
    here = WorkerStanding("w0-1", 0, "h:1", 8, True, host="h1")
    there = WorkerStanding("w1-1", 1, "h:2", 8, True, host="h2")
    exposures = [ExposedHost("h1", 3, 1, 2), ExposedHost("h2", 2, 1, 1)]
    [trouble] = exposed(exposures, [here, there])
    assert (
        trouble
        == "the loss of the host h1 would leave 2 seats empty (workers that serve there: 3, spares"
        " on other hosts: 1). Start the run with 2 more spares on other hosts, or with --spares"
        " auto"
    )
    assert list(exposed([], [here, there])) == []
    assert list(exposed(exposures, [here])) == [], (
        "the driver has said that one host is all there is"
    )
