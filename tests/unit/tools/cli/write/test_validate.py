from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from tests.rooms import HOUSE


def validated(*words: str) -> Any:
    return CliRunner().invoke(app, ["validate", *words])


def test_a_pipeline_that_is_right(tmp_path: Path) -> None:
    pipeline = str(HOUSE / "examples" / "ads" / "pipeline.yaml")
    words = [f"--set={name}={tmp_path}/x" for name in ("input", "output")]
    done = validated(pipeline, *words)
    assert (done.exit_code, done.output.endswith("all right\n")) == (0, True)
    found = json.loads(validated(pipeline, *words, "--json").stdout)
    assert (found["valid"], found["problems"]) == (True, [])
    assert found["computations"] > 0


def test_one_that_is_wrong_has_its_problems_in_json_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("pipeline: p\nstreams: {a: {source: injection}}\n")
    done = validated(str(tmp_path / "p.yaml"), "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["valid"]) == (1, False)
    assert any("streams.a.timestamp: is missing" in problem for problem in found["problems"])
