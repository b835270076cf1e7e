from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from millwheel.errors import PipelineError, SetupError
from millwheel.launch import driver
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.tools.cli import main
from millwheel.tools.cli.app import app

EXAMPLES = Path(__file__).parents[4] / "examples"


class Asked:
    """Stands for the driver, and keeps what it was asked."""

    settings: list[RunSettings] = []
    error: Exception | None = None

    def __init__(self, settings: RunSettings, console: object, children: object) -> None:
        self.settings.append(settings)

    def run(self) -> int:
        if self.error is not None:
            raise self.error
        return 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> type[Asked]:
    monkeypatch.setattr(driver, "Driver", Asked)
    monkeypatch.setattr(Asked, "settings", [])
    monkeypatch.setattr(Asked, "error", None)
    return Asked


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of the ``millwheel`` command."""
    monkeypatch.setattr(sys, "argv", ["millwheel", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_every_option_of_run_reaches_the_driver(
    asked: type[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "run p.yaml --set a=1 --set b=x=y --workers 3 --spares 1 --launcher processes"
        " --spark-master spark://h:1"
    )
    more = "--root /r --zookeeper h:1/c --summary s.json --listen auto --no-balance"
    more += " --until-caught-up"
    assert called(monkeypatch, *words.split(), *more.split()) == 0
    assert asked.settings == [
        RunSettings(
            pipeline="p.yaml",
            params={"a": "1", "b": "x=y"},
            workers=3,
            spares=1,
            launcher=LauncherKind.PROCESSES,
            spark_master="spark://h:1",
            root="/r",
            zookeeper="h:1/c",
            summary="s.json",
            listen="auto",
            balance=False,
            until_caught_up=True,
        )
    ]


def test_everything_has_a_default(asked: type[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, "run", "p.yaml") == 0
    assert asked.settings == [RunSettings(pipeline="p.yaml", launcher=LauncherKind.PROCESSES)]


@pytest.mark.parametrize(
    "error", [SetupError("No Java.\nInstall one."), PipelineError("p.yaml:3: bad")]
)
def test_errors_are_sentences_and_exit_code_1(
    error: Exception,
    asked: type[Asked],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(asked, "error", error)
    assert called(monkeypatch, "run", "p.yaml") == 1
    assert capsys.readouterr().err == f"millwheel: {error}\n"


def test_an_interrupt_is_no_stack_trace(
    asked: type[Asked], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asked, "error", KeyboardInterrupt())
    assert called(monkeypatch, "run", "p.yaml") == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["run", "run p.yaml --workers 0", "run p.yaml --launcher dream", "fly", "validate", "inject x"],
)
def test_wrong_usage_is_exit_code_2(
    words: str, asked: type[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called(monkeypatch, *words.split()) == 2
    assert asked.settings == []


def test_a_bad_parameter_is_a_sentence(
    asked: type[Asked], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", "p.yaml", "--set", "input") == 1
    assert "NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("example", ["ads", "weblog", "zeitgeist"])
def test_validate_accepts_the_examples(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = EXAMPLES / example
    done = CliRunner().invoke(
        app, ["validate", str(folder / "pipeline.yaml"), "--set", "input=x", "--set", "output=y"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{example}: 1 streams")


def test_validate_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text("pipeline: p\nstraems: {}\n")
    assert called(monkeypatch, "validate", str(tmp_path / "p.yaml")) == 1
    said = capsys.readouterr().err
    assert "p.yaml:2" in said
    assert "streams" in said


def test_a_missing_pipeline_file_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", "no-such.yaml") == 1
    assert "no-such.yaml" in capsys.readouterr().err


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.output.startswith("millwheel 0.")


def test_help_names_the_extra_that_a_command_needs() -> None:
    shown = CliRunner().invoke(app, ["ui", "--help"], terminal_width=200)
    assert "pip install 'millwheel-spark[ui]'" in shown.output


def test_status_and_inject_need_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["status"], ["inject", "hits", "-"]):
        assert called(monkeypatch, *words, "--root", str(tmp_path)) == 1
        assert "not the root of a run" in capsys.readouterr().err


def test_help_is_quick_because_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys; from millwheel.tools.cli.app import app;print([m for m in ('grpc', 'kazoo',"
        " 'rocksdict', 'polars', 'pyspark', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Where there is nothing to print as JSON, with the reason.
WITHOUT_JSON = {
    "run": "its summary goes to the file of --summary, its figures to `status --json` and /metrics",
    "schema": "it prints JSON",
    "ui": "it serves pages until it is stopped, and their data as JSON",
    "serve": "it serves answers as JSON until it is stopped",
    "metrics": "it serves the text of Prometheus until it is stopped",
    "token": "it prints the token and nothing else, for the command line of another program",
    "submit": "it prints what spark-submit prints",
}


def test_every_command_prints_json_or_says_why_not() -> None:
    lacking = {
        name
        for name, command in _commands(typer.main.get_command(app))
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert lacking == {
        name for name in WITHOUT_JSON if name in dict(_commands(typer.main.get_command(app)))
    }


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield before + name, command


def test_certificates_are_told_as_json(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["certs", str(tmp_path / "certs"), "--json"])
    assert json.loads(told.stdout) == {"folder": str(tmp_path / "certs")}


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
