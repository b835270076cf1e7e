from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.control.roots.root import ACCESS, Root, RunInfo
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.progress.metrics import METRICS_FILE
from millwheel.launch.progress.report import note_progress
from millwheel.launch.progress.run_standing import HeldBy, NodeStanding, RunStanding, WorkerStanding
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli import status as command
from millwheel.tools.cli.app import app
from millwheel.tools.cli.status import shown, status, summary
from tests.unit.tools.client.test_queries import run_on


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


SO_FAR = Summary(12, 3, 0, 1, 0, 2.0, 6.0)


def said(root: Path) -> str:
    console = Console(file=io.StringIO(), width=200)
    summary(str(root), console, False)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_summary_of_a_run_is_there_while_it_runs_and_afterwards(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = Root.open(str(tmp_path / "r"), "p")
    with pytest.raises(SetupError, match="has done nothing yet"):
        said(root.path)
    note_progress(root.path, "p: 12 records", SO_FAR)
    assert "is running.\n12 records in, 3 out" in said(root.path)
    summary(str(root.path), Console(), True)
    shown = json.loads(capsysbinary.readouterr().out)
    assert (shown["state"], shown["summary"]) == ("running", msgspec.to_builtins(SO_FAR))
    root.close()
    assert "is stopped." in said(root.path)
    root.complete(SO_FAR.to_json())
    assert "is complete." in said(root.path)


@pytest.fixture
def driver_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "attach", lambda root: RunInfo("ads", "i", "z", 1))
    return tmp_path


def test_the_text_of_the_driver_is_printed(
    driver_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnavailableError, match="yet"):
        command.metrics(str(driver_root))
    endpoint = Endpoint("127.0.0.1:0", None, {"/metrics": lambda: b"up 1\n"})
    endpoint.start()
    (driver_root / METRICS_FILE).write_text(json.dumps([{"targets": [endpoint.address]}]))
    command.metrics(str(driver_root))
    assert capsys.readouterr().out == "up 1\n"
    endpoint.close()
    with pytest.raises(UnavailableError, match="does not answer"):
        command.metrics(str(driver_root))


def test_the_token_is_printed_and_nothing_else(tmp_path: Path) -> None:
    run_on(tmp_path / "root")
    known = load_security(str(tmp_path / "root" / ACCESS))
    assert known is not None
    done = CliRunner().invoke(app, ["token", str(tmp_path / "root")])
    assert done.stdout == f"{known.token}\n"


def test_a_run_that_wants_none_says_so(tmp_path: Path) -> None:
    run_on(tmp_path / "root", is_open=True)
    done = CliRunner().invoke(app, ["token", str(tmp_path / "root")])
    assert "was started with --open" in str(done.exception)
