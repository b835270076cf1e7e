"""`millwheel explain` prints and draws, or says what is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from millwheel.errors import SetupError
from millwheel.tools.cli.app import app
from millwheel.tools.cli.pipelines import explain_upgrade
from tests.rooms import HOUSE
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


PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, id: id}
computations:
  counts:
    input: {hits: {key: user}}
    window: {tumbling: SIZE}
    aggregate: {n: count}
    output: counts
sinks: {counts: {stdout: {}}}
"""


def write(folder: Path, name: str, size: str = "1m") -> str:
    (folder / name).write_text(dedent(PIPELINE).replace("SIZE", size))
    return str(folder / name)


def told(old: str, new: str) -> tuple[int, str]:
    out = io.StringIO()
    code = explain_upgrade(old, new, {}, Console(file=out, width=200))
    return code, out.getvalue()


def test_the_same_pipeline_goes_on_with_its_state(tmp_path: Path) -> None:
    code, text = told(write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml"))
    assert code == 0
    assert "No change concerns state." in text
    assert "The same root can continue with it" in text


def test_a_change_is_told_with_its_node_and_verdict(tmp_path: Path) -> None:
    code, text = told(write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml", "2m"))
    assert "counts" in text
    assert (code == 1) is ("cannot continue with this state" in text)
    assert "No change concerns state" not in text


def test_a_folder_that_is_neither_savepoint_nor_root_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"is neither a savepoint .* nor a root that was run"):
        told(str(tmp_path), write(tmp_path, "b.yaml"))


def test_changes_are_one_object_for_other_programs(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    old, new = write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml", "2m")
    code = explain_upgrade(old, new, {}, Console(file=io.StringIO()), as_json=True)
    found = msgspec.json.decode(capfdbinary.readouterr().out)
    assert (code == 1) is (found["verdict"] == "refused")
    assert [change["node"] for change in found["changes"]] == ["counts"]


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
