from __future__ import annotations

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from millwheel.tools.cli.app import app


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
