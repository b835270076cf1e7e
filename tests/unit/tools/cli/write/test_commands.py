from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from tests.rooms import HOUSE


def test_dev_once_shows_rows_and_exits_with_1_if_it_cannot(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nstreams: {loads: {source: {generator: {count: 20}}}}\n"
        "computations: {m: {input: loads, map: {n: key}, output: m}}\nsinks: {m: {stdout: {}}}\n"
    )
    done = CliRunner().invoke(app, ["dev", str(file), "--once", "--rows", "2"])
    assert (done.exit_code, "m  20 records  m" in done.output) == (0, True)
    file.write_text("pipeline: p\n")
    assert CliRunner().invoke(app, ["dev", str(file), "--once"]).exit_code == 1


def test_dev_prints_one_object_for_each_try(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nstreams: {loads: {source: {generator: {count: 20}}}}\n"
        "computations: {m: {input: loads, map: {n: key}, output: m}}\nsinks: {m: {stdout: {}}}\n"
    )
    done = CliRunner().invoke(app, ["dev", str(file), "--once", "--rows", "2", "--json"])
    found = msgspec.json.decode(done.stdout)
    assert [(each["stream"], each["count"], len(each["rows"])) for each in found["stages"]] == [
        ("loads", 20, 2), ("m", 20, 2)
    ]  # fmt: skip
    file.write_text("pipeline: p\n")
    done = CliRunner().invoke(app, ["dev", str(file), "--once", "--json"])
    assert (done.exit_code, list(msgspec.json.decode(done.stdout))) == (1, ["problem"])


# validate.py


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
