from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.control.roots.root import Root
from millwheel.launch.progress.run_standing import HeldBy, NodeStanding, RunStanding, WorkerStanding
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.look.status import shown, status


def test_a_complete_run_shows_its_summary(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path), "ads")
    root.complete(Summary(7, 1, 0, 0, 0, 1.0, 7.0).to_json())
    root.close()
    said = io.StringIO()
    status(str(tmp_path), Console(file=said, width=200))
    assert "is complete" in said.getvalue()
    assert "7 records in" in said.getvalue()


def test_a_complete_run_as_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    root = Root.open(str(tmp_path), "ads")
    root.complete(Summary(7, 1, 0, 0, 0, 1.0, 7.0).to_json())
    root.close()
    status(str(tmp_path), Console(), as_json=True)
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["complete"], found["summary"]["records_in"]) == (True, 7)


def test_people_get_a_line_for_each_node_and_one_for_each_trouble() -> None:
    held = HeldBy("source.hits", "source.hits-0", "partition b.jsonl: nothing read from it yet")
    more = (4, 0, {}, {})
    nodes = (
        NodeStanding(
            "source.hits", "source", "flowing", "2026-01-01 00:00:00.000Z", 5, 0.0, held, *more
        ),
        NodeStanding("counts", "computation", "starting", None, -5, None, held, *more),
        NodeStanding("sink.dead_letters", "sink", "idle", None, 9, None, None, *more),
    )
    workers = (WorkerStanding("w0-1", 0, "h:1", 8, True),)
    standing = RunStanding("ads", "/r", 12_345, 2, nodes, workers, ("counts stands still",))
    said = io.StringIO()
    Console(file=said, width=160).print(shown(standing))
    lines = [" ".join(line.split()) for line in said.getvalue().splitlines()]
    assert lines == [
        "ads: 12,345 records read by 1 workers, 2 dead letters (`millwheel letters`)",
        "node watermark behind shards held by",
        "source.hits 2026-01-01 00:00:00.000Z 0.0s 4 partition b.jsonl: nothing read from it yet",
        "counts starting 4 waits for source.hits",
        "! counts stands still",
    ]
