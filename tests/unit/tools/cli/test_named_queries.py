"""``millwheel queries`` on a root without a run. With one: tests/slow/test_queries.py."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.root_notes import QueryTable
from millwheel.errors import PipelineError, SetupError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.cli import named_queries
from millwheel.tools.cli.app import app
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.unit.language.spec.test_pipelines import PIPELINE


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    opened = load_pipeline(tmp_path / "p.yaml"), QueryTable(FolderSpace("/root", disk))
    monkeypatch.setattr(named_queries, "_opened", lambda folder: opened)
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_queries_are_set_listed_and_removed(console: Console, tmp_path: Path) -> None:
    folder = str(tmp_path)
    named_queries.set_queries(folder, "many", "clicks.n * 2", "3h", console)
    named_queries.remove_query(folder, "cpc", console)
    named_queries.list_queries(folder, False, console)
    assert said(console).splitlines() == [
        "Set many. The next run on this root has that.",
        "Removed cpc. The next run on this root has that.",
        "many: clicks.n * 2, of 3h",
    ]


def test_changes_are_told_as_json(
    console: Console, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    named_queries.set_queries(str(tmp_path), "many", "clicks.n * 2", "3h", console, as_json=True)
    named_queries.remove_query(str(tmp_path), "cpc", console, as_json=True)
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    later = {"known": False, "sentence": "The next run on this root has that"}
    assert found == [
        {"change": "set", "queries": ["many"], **later},
        {"change": "removed", "queries": ["cpc"], **later},
    ]


def test_what_is_not_there_is_a_sentence(console: Console, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no query 'ctr'; there are: cpc"):
        named_queries.remove_query(str(tmp_path), "ctr", console)
    with pytest.raises(SetupError, match="Give a formula for ctr"):
        named_queries.set_queries(str(tmp_path), "ctr", "", "", console)
    with pytest.raises(PipelineError, match="unknown computation 'views'"):
        named_queries.set_queries(str(tmp_path), "ctr", "clicks.n / views.n", "", console)


def test_a_folder_that_is_no_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not the root of a run"):
        named_queries._opened(str(tmp_path))


# query_commands.py: The commands reach their code.


def test_every_option_of_a_query_that_is_set_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        named_queries, "set_queries", lambda *given: calls.append((*given[:-2], given[-1]))
    )
    monkeypatch.setattr(
        named_queries, "remove_query", lambda *given: calls.append((*given[:-2], given[-1]))
    )
    for words in ("set /r ctr --formula a.n --window 1h", "set /r q.yaml --json", "remove /r ctr"):
        assert CliRunner().invoke(app, ["queries", *words.split()]).exit_code == 0
    assert calls == [
        ("/r", "ctr", "a.n", "1h", False),
        ("/r", "q.yaml", "", "", True),
        ("/r", "ctr", False),
    ]
