from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness
from tests.unit.tools.testing.test_pipeline_harness import CODE, PIPELINE


@pytest.fixture
def make(tmp_path: Path) -> Any:
    (tmp_path / "pipeline.yaml").write_text(textwrap.dedent(PIPELINE))
    (tmp_path / "shop.py").write_text(textwrap.dedent(CODE))
    made: list[PipelineHarness] = []

    def make(**options: Any) -> PipelineHarness:
        made.append(PipelineHarness(tmp_path / "pipeline.yaml", **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
