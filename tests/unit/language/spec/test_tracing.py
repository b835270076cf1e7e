"""The ``tracing:`` part of a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel import GeneratorSource, Pipeline, StdoutSink
from millwheel.core.pipeline.spec import TracingSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import check_document, load_pipeline

PLAIN = """
pipeline: p
streams: {hits: {source: {generator: {events: 10, fields: {a: int}}}, timestamp: ts}}
sinks: {hits: {stdout: {}}}
"""


def read(folder: Path, more: str) -> TracingSpec | None:
    (folder / "p.yaml").write_text(PLAIN + more)
    return load_pipeline(folder / "p.yaml", check_code=False).tracing


def test_nothing_is_traced_unless_the_pipeline_says_so(tmp_path: Path) -> None:
    assert read(tmp_path, "") is None
    assert read(tmp_path, "tracing: {}") == TracingSpec(0.0, keys=False)
    assert read(tmp_path, "tracing: {sample: 0.001, keys: true}") == TracingSpec(0.001, keys=True)
    assert read(tmp_path, "tracing: {sample: 1}") == TracingSpec(1.0)


@pytest.mark.parametrize("share", ["2", "-0.1", "often", "true", "10%"])
def test_a_share_is_a_number_from_0_to_1(tmp_path: Path, share: str) -> None:
    with pytest.raises(PipelineError, match=r"tracing\.sample.*such as 0\.001"):
        read(tmp_path, f"tracing: {{sample: {share}}}")


def test_a_pipeline_in_python_has_the_same_part() -> None:
    for given, spec in (({"sample": 0.5}, TracingSpec(0.5)), ({}, TracingSpec()), (None, None)):
        made = Pipeline("p", tracing=given)
        made.read("hits", GeneratorSource(rate=10), timestamp="ts").write(StdoutSink())
        document = made._draft.document("p.py", "p")
        assert check_document(document, check_code=False)[0].tracing == spec
