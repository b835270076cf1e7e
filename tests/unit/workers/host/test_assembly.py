from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.testing import PipelineHarness

SECOND = 1_000_000
PIPELINE = """pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, id: {field: id, horizon: 30s}}
computations:
  twice: {input: {hits: {key: k}}, window: {count: 2}, output: twice%s}
  both: {input: {twice: {key: k}, hits: {key: k}}, window: {session: 15s}, late: {side: behind}, output: both}
"""


@pytest.mark.parametrize(("productions", "forgotten"), [("", True), (", productions: weak", False)])
def test_only_streams_with_ids_say_how_long_ids_are_remembered(
    tmp_path: Path, productions: str, forgotten: bool
) -> None:
    """The ids of weak productions have a horizon of an hour; other streams of computations have no ids at all."""
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE % productions)
    with PipelineHarness(str(file)) as harness:
        hit = {"at": SECOND, "k": "a", "id": "1"}
        harness.push("hits", hit)
        harness.advance_watermark(1_000 * SECOND)
        harness.push("hits", hit)
        assert len(harness.read("behind")) == forgotten
