from __future__ import annotations

from pathlib import Path

from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import MIN_TIME, SECOND
from millwheel.launch.progress.run_standing import HeldBy, NodeStanding, RunStanding, WorkerStanding
from millwheel.tools.ui.documents import LiveRun, live_run
from millwheel.tools.ui.readings import ShardRate, ShardReading
from tests.unit.tools.ui.test_layout import drawn


def node(name: str, kind: str, at_s: int, **more: int) -> NodeStanding:
    held = HeldBy(name, f"{name}-0", "input")
    state = "flowing" if at_s else "starting"
    us = at_s * SECOND if at_s else MIN_TIME
    return NodeStanding(name, kind, state, "then", us, 0.0, held, 2, 0, more, {})


def shown(tmp_path: Path, at_s: int = 100) -> LiveRun:
    nodes = (
        node("source.words", "source", at_s, records_in=40), node("count", "computation",
        at_s and at_s - 7),
        node("sink.counts", "sink", at_s and at_s - 7, records_out=4), node("sink.dead_letters",
        "sink", at_s),
    )  # fmt: skip
    workers = (WorkerStanding("w0", 0, "h:1", 2, True),)
    standing = RunStanding("drawn", "/r", 40, 3, nodes, workers, ("count is 7s behind",))
    owners = ("w0", "w-dead")
    tables = {
        NodeName(name): RangeTable(
            NodeName(name),
            tuple(
                ShardEntry(ShardName(f"{name}-{number}"), piece, WorkerName(owners[number]),
                Token(1))
                for number, piece in enumerate(tile(2))
            ),
            1,
        )
        for name in ("source.words", "count", "sink.counts")
    }  # fmt: skip
    readings = {
        "w0": {
            "count-0": ShardReading(state_bytes=9, inbox=3, credit=0.6),
            "source.words-0": ShardReading(congested=1),
        }
    }
    rates = {"count-0": ShardRate(50.0, 5.0, 0.25), "source.words-0": ShardRate(50.0, 0.0, 0.5)}
    return live_run(standing, drawn(tmp_path), tables, readings, rates, 1, "a line")


def test_figures_of_shards_are_summed_for_their_node(tmp_path: Path) -> None:
    live = shown(tmp_path)
    count = live.nodes[1]
    assert (count.rate_in, count.rate_out, count.busy, count.state_bytes, count.pressure) == (
        50.0,
        5.0,
        0.25,
        9,
        0.6,
    )
    assert (live.rate, live.records_in, live.dead_letters, live.state) == (50.0, 40, 3, "running")
    assert live.troubles == ("count is 7s behind",)
    assert [each.name for each in live.nodes] == ["source.words", "count", "sink.counts"]


def test_a_shard_of_a_dead_worker_belongs_to_nobody(tmp_path: Path) -> None:
    first, second = shown(tmp_path).nodes[1].shards
    assert (first.owner, first.slot, first.inbox, first.credit) == ("w0", 0, 3, 0.6)
    assert (second.owner, second.slot, second.rate) == ("", -1, 0.0)


def test_arrows_have_rate_lag_and_the_pressure_of_their_source(tmp_path: Path) -> None:
    words, counts = shown(tmp_path).edges
    assert (words.rate, words.lag_s, words.pressure) == (50.0, 7.0, 1.0)
    assert (counts.rate, counts.lag_s) == (0.0, 0.0)


def test_a_run_without_watermarks_is_starting(tmp_path: Path) -> None:
    live = shown(tmp_path, at_s=0)
    assert (live.state, live.edges[0].lag_s) == ("starting", None)
