"""A folder with a pipeline in it, and what checking it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline

Check = Callable[..., PipelineSpec]
Problems = Callable[..., list[str]]

WEBLOG = """\
pipeline: weblog
streams:
  hits:
    source: {files: {path: "${input}", format: apache_combined}}
    timestamp: time
    watermark: {max_delay: 2m}
computations:
  traffic:
    input: {hits: {key: path}}
    window: {tumbling: 1m}
    aggregate: {hits: count, bytes: {sum: size}, visitors: {count_distinct: client}}
    output: traffic_by_minute
  spikes:
    input: {traffic_by_minute: {key: path}}
    callback: detectors:SpikeDetector
    output: alerts
sinks:
  alerts: {files: {path: "${output}/alerts", format: jsonl}}
"""
DETECTORS = """\
from millwheel.api import Computation

class SpikeDetector(Computation):
    def __init__(self, threshold=4.0):
        self.threshold = threshold

    def process_record(self, ctx, record):
        pass

class Ticker(SpikeDetector):
    def process_timer(self, ctx, timer):
        pass

class Funnel(Computation):
    def process_window(self, ctx, key, window, records):
        pass

class Undoing(SpikeDetector):
    takes_retractions = True

class Plain:
    pass

class Lazy(Computation):
    pass

def by_user(value):
    return value["user"]

NUMBER = 3
"""
PARAMS = {"input": "access.log", "output": "out"}


@pytest.fixture
def weblog() -> str:
    return WEBLOG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "detectors.py").write_text(DETECTORS)
    return tmp_path


@pytest.fixture
def check(folder: Path) -> Check:
    """Checks a pipeline's text; the warnings are dropped."""

    def run(
        text: str | bytes, params: Mapping[str, str] = PARAMS, check_code: bool = True
    ) -> PipelineSpec:
        file = folder / "pipeline.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return check_pipeline(file, params, {}, check_code=check_code)[0]

    return run


@pytest.fixture
def problems(folder: Path, check: Check) -> Problems:
    """What is wrong with a pipeline's text, with the folder's name left out."""

    def run(
        text: str | bytes, params: Mapping[str, str] = PARAMS, check_code: bool = True
    ) -> list[str]:
        try:
            check(text, params, check_code)
        except PipelineError as ex:
            return [problem.replace(f"{folder}/", "") for problem in ex.problems]
        return []

    return run
