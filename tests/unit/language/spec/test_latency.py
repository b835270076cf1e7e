"""The ``latency:`` part of a pipeline file."""

from pathlib import Path

import pytest

from millwheel import FileSource, Pipeline, StdoutSink
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import check_document, load_pipeline

PIPELINE = """\
pipeline: p
streams:
  hits: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: ts}
sinks:
  hits: {files: {path: out, format: jsonl}}
"""


def read(folder: Path, text: str) -> int | None:
    (folder / "p.yaml").write_text(PIPELINE + text)
    return load_pipeline(folder / "p.yaml", check_code=False).latency_us


def test_the_settings(tmp_path: Path) -> None:
    assert read(tmp_path, "") is None
    assert read(tmp_path, "latency: balanced") is None
    assert read(tmp_path, "latency: greedy") == 0
    assert read(tmp_path, "latency: 2ms") == 2_000
    assert read(tmp_path, "latency: 1s") == 1_000_000


@pytest.mark.parametrize("text", ["2s", "10us", "0ms"])
def test_a_duration_that_is_none_for_a_step_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        PipelineError, match=r"latency.*greedy, balanced or a duration from 100us to 1s"
    ):
        read(tmp_path, f"latency: {text}")


@pytest.mark.parametrize("text", ["quick", "2", "{a: 1}", "[greedy]"])
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PipelineError, match="latency"):
        read(tmp_path, f"latency: {text}")


def test_a_pipeline_in_python_says_the_same(tmp_path: Path) -> None:
    made = Pipeline("p", latency="20ms")
    made.read("hits", FileSource("in.jsonl", "jsonl"), timestamp="ts").write(StdoutSink())
    document = made._draft.document(str(tmp_path / "p.py"), "p")
    assert check_document(document, check_code=False)[0].latency_us == 20_000
