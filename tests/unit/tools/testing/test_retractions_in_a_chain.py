"""The sessions of the Dataflow paper (figure 14) and their sum, through the whole runtime, wherever
it crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

S = 1_000_000
MINUTE = 60 * S
PIPELINE = """
pipeline: scores
streams:
  scores: {source: {injection: {}}, timestamp: {field: at, unit: s}}
computations:
  sessions:
    input: {scores: {key: user}}
    window: {session: 1m}
    trigger: {after_watermark: {early: {after_processing_time: {align: 1m}},
      late: {after_count: 1}}}
    accumulation: retracting
    allowed_lateness: 1h
    aggregate: {score: {sum: score}}
    output: sessions
  teams:
    input: {sessions: {key: "teams:of"}}
    window: global
    trigger: {repeat: {after_count: 1}}
    accumulation: accumulating
    aggregate: {total: {sum: score}, sessions: count}
    output: totals
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "scores.yaml").write_text(PIPELINE)
    (tmp_path / "teams.py").write_text("def of(value):\n    return 'all'\n")
    return tmp_path / "scores.yaml"


def _push(harness: PipelineHarness, *scores: tuple[int, int]) -> None:
    harness.push("scores", [{"user": "ann", "score": score, "at": at} for score, at in scores])


def _said(harness: PipelineHarness) -> list[int]:
    return [
        -row["score"] if "__retraction__" in row else row["score"]
        for row in harness.take("sessions")
    ]


def _figure_14(harness: PipelineHarness) -> list[Any]:
    said: list[Any] = []

    def clock(seconds: int) -> None:
        harness.advance_processing_time(seconds * S)
        said.append(_said(harness))

    def watermark(seconds: int) -> None:
        harness.advance_watermark(seconds * S)
        said.append(_said(harness))

    clock(310)
    _push(harness, (5, 30), (7, 130))
    clock(380)
    _push(harness, (3, 230), (4, 260), (3, 290))
    clock(435)
    _push(harness, (8, 180))
    watermark(350)
    _push(harness, (3, 390))
    clock(500)
    _push(harness, (9, 80))
    said.append(_said(harness))
    _push(harness, (8, 430), (1, 470))
    watermark(530)
    return said


def test_sessions_and_their_sum_are_those_of_the_figure(pipeline: Path) -> None:
    with PipelineHarness(pipeline) as harness:
        said = _figure_14(harness)
        assert [sorted(step) for step in said] == [
            sorted(step) for step in ([], [5, 7], [10], [-7, -10, 25], [3], [-5, -25, 39], [-3, 12])
        ]
        last = harness.read("totals")[-1]
        assert (last["total"], last["sessions"]) == (51, 2)


def test_what_stands_at_the_end_does_so_wherever_it_crashes(pipeline: Path) -> None:
    with PipelineHarness(pipeline) as calm:
        _figure_14(calm)
        wanted = calm.read("totals")[-1], calm.read("sessions")
        units = calm.units
    for unit in range(1, units, 9):
        with PipelineHarness(pipeline, crash_at=unit) as harness:
            _figure_14(harness)
            assert (harness.read("totals")[-1], harness.read("sessions")) == wanted, unit


def test_with_one_worker_every_total_on_the_way_is_the_same_too(pipeline: Path) -> None:
    assert assert_survives_crashes(pipeline, _figure_14, every=20, workers=1, shards=1) > 5
