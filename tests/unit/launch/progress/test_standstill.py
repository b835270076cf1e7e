from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from millwheel.adapters.waits import Waiting
from millwheel.core.pipeline.graph import ClusterView, NodeView, build_graph
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.launch.progress import collector
from millwheel.launch.progress.run_standing import (
    HeldBy,
    NodeStanding,
    RunStanding,
    WorkerStanding,
)
from millwheel.launch.progress.standstill import Lasting, ReasonsOfStandstill
from tests.unit.tools.ui.test_layout import TEXT

WORKER = WorkerStanding("w0-1", 0, "h:1", 8, True)
HELD = HeldBy("source.hits", "source.hits-0", "partition hits.jsonl: nothing read from it yet")
NODE = NodeStanding("traffic", "computation", "flowing", "", 5, 60.0, HELD, 1, 0, {}, {})
RUN = RunStanding("p", "/r", 0, 0, (NODE,), (WORKER,), ())


def test_a_node_that_is_behind_is_told_only_while_it_does_not_move() -> None:
    lasting, moved = Lasting(), msgspec.structs.replace(NODE, watermark_us=6)
    assert lasting.look(RUN, 0.0) == ()
    assert lasting.look(msgspec.structs.replace(RUN, nodes=(moved,)), 9.0) == ()
    assert lasting.look(msgspec.structs.replace(RUN, nodes=(moved,)), 18.0) == ()
    [told] = lasting.look(msgspec.structs.replace(RUN, nodes=(moved,)), 19.0)
    assert told == f"traffic is 1m behind, held by source.hits-0: {HELD.words}"


def test_a_worker_that_does_not_answer_is_told_and_a_full_memory_is_not() -> None:
    lasting = Lasting()
    silent = WorkerStanding("w1-1", 1, "h:2", 8, False)
    full = WorkerStanding("w0-1", 0, "h:1", 8, True, memory=0.95)
    run = RunStanding("p", "/r", 0, 0, (), (full, silent), ())
    lasting.look(run, 0.0)
    assert lasting.look(run, 10.0) == ("w1-1 (slot 1) does not answer",)


def test_waits_and_deaths_are_told_at_once_and_no_more_than_a_few() -> None:
    waits = tuple(Waiting(f"sink {number}", "the disk is full", 12) for number in range(7))
    run = msgspec.structs.replace(
        RUN, nodes=(), waits=waits, deaths=("worker 0 was killed by SIGSEGV, 1 s ago",)
    )
    told = Lasting().look(run, 0.0)
    assert told[0] == "sink 0: the disk is full (for 12 s)"
    assert told[-1] == "and 3 more: see millwheel status"


def test_a_run_without_any_worker_says_so() -> None:
    lasting = Lasting()
    empty = msgspec.structs.replace(RUN, nodes=(), workers=())
    lasting.look(empty, 0.0)
    assert lasting.look(empty, 11.0) == ("no worker has joined",)


def test_the_driver_knows_what_its_processes_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"waits": [{"what": "sink out", "why": "no space left", "for_s": 11}]}'
    monkeypatch.setattr(
        collector, "fetched", lambda addresses, path, security: dict.fromkeys(addresses, said)
    )
    (tmp_path / "p.yaml").write_text(TEXT)
    entries = {"w0-a": b'{"slot": 0, "pid": 1, "address": "h:1", "metrics": "h:11"}'}
    watcher: Any = SimpleNamespace(latest=None, tables={}, entries=entries)
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    reasons = ReasonsOfStandstill(graph, "drawn", tmp_path, watcher, None)
    reasons.look(0.0)
    assert reasons.reasons == (), "no injector has answered yet"
    watcher.latest = ClusterView({"source.words": NodeView("source.words", 0, True, "", {})})
    reasons.look(1.0)
    assert reasons.reasons == ("sink out: no space left (for 11 s)",)
