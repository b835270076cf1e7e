"""`millwheel explain` prints and draws, or says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from tests.unit.tools.explain.test_picture import REPO


def explain(*words: str) -> Any:
    return CliRunner().invoke(app, ["explain", *words])


def test_the_command_prints_the_tree_and_draws_the_picture(tmp_path: Path) -> None:
    pipeline = str(REPO / "examples" / "ads" / "pipeline.py")
    done = explain(pipeline, "--set", "output=/there", "--svg", str(tmp_path / "ads.svg"))
    assert done.exit_code == 0
    assert "files jsonl: ${input}" in done.output
    assert "files jsonl: /there/ctr" in done.output
    assert "/there/over_budget" in (tmp_path / "ads.svg").read_text()


def test_a_wrong_pipeline_is_told_instead_of_drawn(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("pipeline: p\nstreams: {a: {source: injection}}\n")
    done = explain(str(tmp_path / "p.yaml"), "--svg", str(tmp_path / "p.svg"))
    assert "streams.a.timestamp: is missing" in str(done.exception)
    assert not (tmp_path / "p.svg").exists()


def test_a_picture_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    done = explain(
        str(REPO / "examples" / "ads" / "pipeline.yaml"), "--svg", str(tmp_path / "no" / "p.svg")
    )
    assert (
        "cannot be written: No such file or directory; name a file in a folder that exists"
        in str(done.exception)
    )


def test_the_same_as_mermaid_text_and_as_json() -> None:
    pipeline = str(REPO / "examples" / "ads" / "pipeline.yaml")
    assert explain(pipeline, "--mermaid").stdout.startswith("flowchart TB\n")
    found = json.loads(explain(pipeline, "--json").stdout)
    assert {"title", "boxes", "arrows"} == found.keys()
    assert {"name", "kind", "title", "lines", "note", "where"} == found["boxes"][0].keys()
