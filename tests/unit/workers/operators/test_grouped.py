"""Windows that fire several times take whole bundles in columns, and say what they say in rows."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millwheel.sources.base import FrameChunk
from millwheel.sources.files.lines import LineReader
from millwheel.sources.frames import frame_of
from millwheel.testing import PipelineHarness
from millwheel.workers.operators.grouped import GroupedOperator
from millwheel.workers.shard.bundle_sizes import ShardLimits
from tests.unit.workers.operators.test_columns import events, pipeline, written

WINDOWING = {
    "early by count": "trigger: {after_watermark: {early: {after_count: 3}}}\n    accumulation: accumulating",
    "early, taken back": "trigger: {after_watermark: {early: {after_count: 4}}}\n    accumulation: retracting",
    "once": "trigger: {once: {after_count: 5}}",
    "on time": "accumulation: retracting",
}


@pytest.mark.parametrize("windowing", WINDOWING.values(), ids=WINDOWING)
@pytest.mark.parametrize("dirt", [[], ["{no json"]], ids=["clean", "dirty"])
def test_windows_that_speak_again_say_what_they_say_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windowing: str, dirt: list[Any]
) -> None:
    """Both forms get the same bundles, because an early pane depends on what a bundle holds."""
    lines = 40
    rows = [{**event, "other": ""} for event in events(200, 6)]
    folder = written(tmp_path, {"a": [*rows[:100], *dirt, *rows[100:]]})

    def by_lines(self: Any, position: int, max_bytes: int) -> Any:
        chunk = self.read(position, lines)
        frame = frame_of(chunk.values, {"ad": "int", "type": "str", "cost": "float", "ts": "int"})
        return FrameChunk(
            np.array(chunk.positions, np.int64), frame, chunk.next_position, chunk.rejects, chunk.finished
        )

    monkeypatch.setattr(LineReader, "read_frame", by_lines)
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=lines))
    said = []
    for declared in (True, False):
        with PipelineHarness(pipeline(folder, declared, windowing), run_sources=True, shards=1) as harness:
            harness.advance_processing_time(10**9)
            [shard] = harness._cluster.shards_of("minutes")
            assert isinstance(shard.operator, GroupedOperator) == declared
            if isinstance(shard.operator, GroupedOperator):
                assert shard.operator.bundles_grouped >= (1 if "once" in windowing else 2)
            rows_of = {name: sorted(map(json.dumps, harness.read(name))) for name in ("minutes", "totals")}
            said.append({**rows_of, "counters": harness.counters})
    assert said[0]["minutes"] == said[1]["minutes"]
    assert said[0] == said[1]
    assert len(said[0]["minutes"]) > 10
