"""Where a pipeline may have secrets, and what becomes of them in what is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millwheel.adapters import secret_values
from millwheel.adapters.secret_values import Secret
from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline, resolve_params
from millwheel.testing import PipelineHarness
from millwheel.tools.cli.pipelines import explain

PIPELINE = """
pipeline: p
streams:
  hits:
    source: {generator: {rate: 10, factory: "made:record"}}
    timestamp: ts
computations:
  count:
    input: {hits: {key: FIELD}}
    callback: counting:Count
    options: {token: TOKEN, nested: {list: ["${secret:API}"]}}
    output: out
sinks:
  out: {files: {path: PATH}}
"""
CODE = """
from millwheel import Computation

class Count(Computation):
    def __init__(self, token, nested):
        self.token = token

    def process_record(self, ctx, record):
        if record.value["v"] == "bad":
            raise ConnectionError(f"https://me:{self.token}@host said no")
        ctx.produce("out", len(self.token))
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    (tmp_path / "counting.py").write_text(CODE)
    (tmp_path / "made.py").write_text("def record(number):\n    return {}\n")

    def made(
        token: str = '"a ${secret:API} ${other:-${}"', path: str = "results", field: str = "k"
    ) -> Path:
        text = PIPELINE.replace("TOKEN", token).replace("PATH", path).replace("FIELD", field)
        (tmp_path / "p.yaml").write_text(text)
        return tmp_path / "p.yaml"

    return made


@pytest.fixture(autouse=True)
def no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "_seen", set())
    monkeypatch.delenv("API", raising=False)


def test_a_pipeline_with_secrets_is_checked_without_their_values(write: Any) -> None:
    spec, warnings = check_pipeline(
        write("'${greeting} ${secret:API} $${x}'"), {"greeting": "${secret:API}"}, {}
    )
    assert spec.computations[0].called.options == {
        "token": Secret("$${secret:API} ${secret:API} $${x}"),
        "nested": {"list": [Secret("${secret:API}")]},
    }
    assert not warnings
    assert (
        spec.computations[0].called.options["token"].filled(lambda name: name.lower())
        == "${secret:API} api ${x}"
    )


def test_secrets_are_no_parameters_that_travel_with_the_pipeline(write: Any) -> None:
    assert (
        resolve_params(str(write("'${secret:API}'")), {}, {"API": "t0ken", "secret": "x"}, "/")
        == {}
    )


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"path": '"${secret:API}"'}, "sinks.out.files.path: a secret is not allowed here"),
        (
            {"field": '"${secret:API}"'},
            "computations.count.input.hits.key: a secret is not allowed here",
        ),
        ({"token": '"${secret:}"'}, "cannot be the name of a secret"),
        ({"token": '"${secret:../x}"'}, "cannot be the name of a secret"),
        ({"token": '"${secret:API:-x}"'}, "cannot be the name of a secret"),
    ],
)
def test_a_secret_where_the_pipeline_itself_needs_the_value_is_a_sentence(
    write: Any, given: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PipelineError, match=complaint):
        check_pipeline(write(**{"token": "x", **given}), {}, {})


def test_blueprints_and_drawings_have_the_name_of_a_secret_at_most(
    write: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API", "t0ken")
    file = write("'${secret:API}'")
    data = msgspec.json.encode(blueprint_of(check_pipeline(file, {}, {})[0]))
    explain(str(file), {}, str(file.with_suffix(".svg")), Console())
    shown = data.decode() + capsys.readouterr().out + file.with_suffix(".svg").read_text()
    assert "t0ken" not in shown
    assert "${secret:API}" in shown


def test_a_callback_has_the_value_and_its_dead_letters_have_not(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API", "t0ken")
    with PipelineHarness(write("'${secret:API}'", field="v").as_posix()) as harness:
        harness.push("hits", {"v": "good"}, timestamp=1)
        harness.push("hits", {"v": "bad"}, timestamp=2)
        assert harness.read("out") == [5]
        (letter,) = harness.read("dead_letters")
    assert "t0ken" not in str(letter)
    assert "https://me:***@host said no" in letter["reason"]
    assert "https://me:***@host said no" in letter["exception"]
