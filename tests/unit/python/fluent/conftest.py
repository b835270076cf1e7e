"""A folder with a pipeline in Python in it, and what loading it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline

HEAD = """\
from millwheel import *

p = Pipeline("p")
hits = p.read("hits", InjectionSource(), timestamp="ts")
"""
"""Four lines that most pipelines of the tests begin with."""


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., PipelineSpec]:
    """Loads a pipeline's text after the head; the warnings are dropped."""

    def run(
        text: str, params: Mapping[str, str] = {}, head: str = HEAD, file: str = "p.py"
    ) -> PipelineSpec:
        (tmp_path / file.partition(":")[0]).write_text(head + text)
        return check_pipeline(tmp_path / file, params, {})[0]

    return run


@pytest.fixture
def problems(tmp_path: Path, check: Callable[..., PipelineSpec]) -> Callable[..., list[str]]:
    """What is wrong with a pipeline's text, with the folder's name left out."""

    def run(text: str, *given: object, **more: object) -> list[str]:
        try:
            check(text, *given, **more)
        except PipelineError as ex:
            return [problem.replace(f"{tmp_path}/", "") for problem in ex.problems]
        return []

    return run
