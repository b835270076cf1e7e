"""Watermarks are reported less often where nothing waits for them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest

from millwheel.adapters.clock import SystemClock
from millwheel.sinks import build_sink
from millwheel.sources import build_source
from millwheel.spec.pipelines import load_pipeline
from millwheel.workers.host.assembly import Assembly, Factories
from millwheel.workers.loop.reporting import Reporting, ReportPace

HEAD = """
    pipeline: pace
    streams:
      lines: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: at}
    computations:
"""
CODE = """
    from millwheel import Computation

    class Plain(Computation):
        def process_record(self, ctx, record):
            ctx.produce("out", record.value)

    class Timed(Plain):
        def process_timer(self, ctx, timer):
            ctx.produce("out", {})
"""
WAITS = {
    'callback: "pace_code:Plain"': False,
    'callback: "pace_code:Timed"': True,
    "window: {tumbling: 1m}, aggregate: {n: count}": True,
    "order_by: timestamp, callback: 'pace_code:Plain'": True,
    "deduplicate: {by: user, within: 1m}": True,
    "steps: [{filter: 'user > 1'}]": False,
}


@pytest.mark.parametrize("made_of", WAITS)
def test_who_waits_for_time_is_told_often(tmp_path: Path, made_of: str) -> None:
    (tmp_path / "pace_code.py").write_text(dedent(CODE))
    (tmp_path / "in.jsonl").write_text("")
    text = HEAD + "      it: {input: {lines: {key: user}}, " + made_of + ", output: out}\n"
    (tmp_path / "p.yaml").write_text(dedent(text))
    assembly = Assembly(load_pipeline(tmp_path / "p.yaml"), "", SystemClock(), Factories(build_source, build_sink))
    assert assembly.waits_for_time() is WAITS[made_of]


def test_the_pace() -> None:
    assert ReportPace.for_pipeline(True).report_us == 20_000
    assert ReportPace.for_pipeline(False).report_us == 200_000


def test_once_the_sources_have_ended_everybody_is_told_often() -> None:
    nobody: Any = Mock()
    reporting = Reporting(nobody, nobody, ReportPace.for_pipeline(False))
    reporting.step([], 1_000)
    reporting.changed = True
    assert reporting.wakes_at() == 201_000
    reporting.hurry()
    reporting.step([], 2_000)
    reporting.changed = True
    assert reporting.wakes_at() == 22_000
