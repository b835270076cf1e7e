from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millwheel.adapters.pb.master_pb2 import Work
from millwheel.control.roots.shipping import ship
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, tile
from millwheel.core.slices.slots import WIDTH, slot_of_key
from millwheel.errors import SetupError, UnavailableError
from millwheel.language.spec import load_pipeline
from millwheel.tools.cli.change import ranges
from millwheel.tools.cli.change import ranges as module
from millwheel.tools.cli.change.ranges import (
    merge,
    move,
    node_of,
    scale,
    shards_shown,
    shards_table,
    split,
)

CONSOLE = Console(file=io.StringIO())


def test_a_shard_names_its_node() -> None:
    assert node_of("traffic-12") == "traffic"
    assert node_of("sink.by-day-0") == "sink.by-day"
    for name in ("traffic", "-3", "traffic-x", ""):
        with pytest.raises(SetupError, match="names no shard"):
            node_of(name)


def test_shards_are_shown_in_the_order_of_their_ranges_with_plans_and_load() -> None:
    lower, upper = tile(2)
    table = RangeTable(
        "n",
        (
            ShardEntry("n-1", upper, "w2", 1, merges_as="n-9"),
            ShardEntry("n-0", lower, "w1", 1, split_at=SPACE // 4),
        ),
    )
    said = io.StringIO()
    work = {"n-0": Work(shard="n-0", busy=0.25, records_per_s=1200)}
    Console(file=said, width=200).print(shards_table({"n": table}, work))
    first, second = [line.split() for line in said.getvalue().splitlines()[1:]]
    assert first[:3] == ["n-0", "0000000000000000", "7fffffffffffffff"]
    assert "to be split at 4000000000000000" in said.getvalue()
    assert first[-2:] == ["25%", "1,200"]
    assert second[0] == "n-1"
    assert "to be merged as n-9" in said.getvalue()


def test_what_cannot_be_asked_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not both"):
        split(str(tmp_path), "n-0", "4000", "k", CONSOLE)
    with pytest.raises(SetupError, match="different nodes"):
        merge(str(tmp_path), "n-0", "m-1", CONSOLE)
    with pytest.raises(SetupError, match="not the root of a run"):
        scale(str(tmp_path), 3, 1, CONSOLE)


PIPELINE = """
pipeline: asked
streams:
  events:
    source: {files: {path: "/nowhere/*.jsonl", format: jsonl}}
    timestamp: at
    fields: {at: int, ad: int}
computations:
  clicks:
    input: {events: {key: ad}}
    slices: {every: 10s, keep: 1h}
    aggregate: {n: count}
  seen:
    input: {events: {key: ad}}
    window: {tumbling: 10s}
    aggregate: {n: count}
    output: counted
sinks:
  counted: {files: {path: /nowhere/out, format: jsonl}}
"""


def test_a_split_at_a_key_is_at_its_hash_and_at_its_slot_where_the_node_has_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    root = tmp_path / "root"
    root.mkdir()
    ship(tmp_path / "p.yaml", {}, root, load_pipeline(tmp_path / "p.yaml"))
    asked: list[tuple[str, str, str]] = []
    master = SimpleNamespace(split=lambda *given: asked.append(given))
    monkeypatch.setattr(
        "millwheel.tools.cli.change.ranges._master", lambda address: nullcontext(master)
    )
    for shard in ("clicks-0", "seen-0"):
        split(str(root), shard, "", "42", CONSOLE)
    split(str(root), "clicks-0", "4000", "", CONSOLE)
    assert asked == [
        ("clicks", "clicks-0", f"{slot_of_key(42) * WIDTH:016x}"),
        ("seen", "seen-0", f"{key_hash('42'):016x}"),
        ("clicks", "clicks-0", "4000"),
    ]


def test_standbys_are_shown_when_there_are_any() -> None:
    lower, upper = tile(2)
    alone, followed = (
        ShardEntry("n-0", lower, "w1", 1),
        ShardEntry("n-1", upper, "w2", 1, standby="w1"),
    )
    said = io.StringIO()
    console = Console(file=said, width=200)
    console.print(shards_table({"n": RangeTable("n", (alone, followed))}, {}))
    head, first, second = [line.split() for line in said.getvalue().splitlines()]
    assert head[-1] == "standby"
    assert (first[-1], second[-1]) == ("w1", "w1")
    assert len(second) == len(first) + 1


def test_shards_are_values_for_other_programs() -> None:
    lower, upper = tile(2)
    entries = (
        ShardEntry("n-1", upper, "w2", 1, merges_as="n-9"),
        ShardEntry("n-0", lower, "w1", 1, split_at=SPACE // 4),
    )
    first, second = shards_shown(
        {"n": RangeTable("n", entries)}, {"n-0": Work(shard="n-0", busy=0.25, records_per_s=1200)}
    )
    assert msgspec.to_builtins(first) == {
        "node": "n", "shard": "n-0", "first": "0" * 16, "last": "7" + "f" * 15, "owner": "w1",
        "split_at": "4" + "0" * 15, "busy": 0.25, "records_per_s": 1200.0,
    }  # fmt: skip
    assert (second.shard, second.merges_as, second.busy) == ("n-1", "n-9", None)


def test_changes_of_ranges_are_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    master = SimpleNamespace(split=lambda *_: None, merge=lambda *_: None, move=lambda *_: None)
    monkeypatch.setattr(ranges, "_master", lambda address: nullcontext(master))
    split("", "n-0", "4000", "", CONSOLE, as_json=True)
    merge("", "n-0", "n-1", CONSOLE, as_json=True)
    move("", "n-2", "w1", CONSOLE, as_json=True)
    assert [msgspec.json.decode(line) for line in capfdbinary.readouterr().out.splitlines()] == [
        {"change": "split", "shards": ["n-0"], "at": "4000"},
        {"change": "merge", "shards": ["n-0", "n-1"]},
        {"change": "move", "shards": ["n-2"], "worker": "w1"},
    ]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose driver answers what the test says."""
    state = SimpleNamespace(asked=[], answers=[], driven=True)
    monkeypatch.setattr(module, "chosen_root", Path)
    monkeypatch.setattr(module, "attach", lambda root: None)
    monkeypatch.setattr(module, "ask", lambda root, workers: state.asked.append(workers))
    monkeypatch.setattr(
        module, "answer", lambda root: state.answers.pop(0) if state.answers else None
    )
    monkeypatch.setattr(module, "is_driven", lambda root: state.driven)
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    return state


def said(workers: int, limit_s: float = 9.0) -> str:
    out = io.StringIO()
    module.scale("/root", workers, limit_s, Console(file=out, width=200))
    return out.getvalue()


def answered(workers: int, problem: str = "") -> Any:
    return SimpleNamespace(workers=workers, problem=problem)


def test_it_waits_until_the_driver_has_so_many_workers(run: Any) -> None:
    run.answers = [None, answered(2), answered(3)]
    assert "There are 3 workers." in said(3)
    assert run.asked == [3]


def test_a_refusal_is_told_in_the_drivers_words(run: Any) -> None:
    run.answers = [answered(9, "there are 4 slots")]
    with pytest.raises(SetupError, match="There cannot be 9 workers: there are 4 slots"):
        said(9)


def test_a_driver_that_is_slow_or_gone_is_told(run: Any) -> None:
    with pytest.raises(
        UnavailableError, match="There are not 3 workers after 0 s; the run keeps trying"
    ):
        said(3, 0.0)
    run.driven = False
    with pytest.raises(UnavailableError, match="The run ended before there were 3 workers"):
        said(3)


def test_the_change_is_one_object_for_other_programs(
    run: Any, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run.answers = [answered(3)]
    module.scale("/root", 3, 9.0, Console(file=io.StringIO()), as_json=True)
    assert msgspec.json.decode(capfdbinary.readouterr().out) == {"root": "/root", "workers": 3}
