"""A record too far in the future is a dead letter, and never costs its neighbours."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from millwheel.core.model.times import SECOND
from millwheel.testing import PipelineHarness

FAR = 4 * 86_400 * SECOND
LINES = 110_000
PIPELINE = """
    pipeline: p
    streams:
      hits: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: at, watermark: {max_delay: 1d}}
    computations:
      passed: {input: {hits: {key: user}}, filter: "user >= 0", output: out}
    sinks:
      out: {files: {path: out}}
"""


@pytest.mark.parametrize("far", [[67_000], [1, 30_000, 67_000, 67_001, 109_999]])
def test_a_record_too_far_in_the_future_never_costs_its_neighbours(tmp_path: Path, far: list[int]) -> None:
    """Several reads are on their way and their positions are being committed when it is met."""
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE))
    lines = [f'{{"user":{n},"at":{FAR if n in far else n}}}\n' for n in range(LINES)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    with PipelineHarness(tmp_path / "p.yaml", run_sources=True, now=0, shards=1, workers=1) as harness:
        harness.advance_processing_time(60 * SECOND)
        came = sorted(row["user"] for row in harness.read("out"))
        letters = harness.counters["dead_letters"]
    assert came == [n for n in range(LINES) if n not in far]
    assert letters == len(far)
