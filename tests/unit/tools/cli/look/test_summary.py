from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.control.roots.root import Root, RunInfo
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.progress.metrics import METRICS_FILE
from millwheel.launch.progress.report import note_progress
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.look import summary as command
from millwheel.tools.cli.look.summary import summary

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
