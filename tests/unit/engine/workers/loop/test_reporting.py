"""Watermarks are reported less often where nothing waits for them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest

from millwheel.adapters.clock import SystemClock
from millwheel.connect.kinds import build_sink, build_source
from millwheel.core.model.names import NodeName
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.loop.reporting import Reporting, ReportPace
from millwheel.engine.workers.loop.shard_handle import LIVE, Served
from millwheel.language.spec.pipelines import load_pipeline

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
    "over: {rows: 3}, aggregate: {n: count}": True,
    "steps: [{filter: 'user > 1'}]": False,
}


@pytest.mark.parametrize("made_of", WAITS)
def test_who_waits_for_time_is_told_often(tmp_path: Path, made_of: str) -> None:
    (tmp_path / "pace_code.py").write_text(dedent(CODE))
    (tmp_path / "in.jsonl").write_text("")
    text = HEAD + "      it: {input: {lines: {key: user}}, " + made_of + ", output: out}\n"
    (tmp_path / "p.yaml").write_text(dedent(text))
    assembly = Assembly(
        load_pipeline(tmp_path / "p.yaml"), "", SystemClock(), Factories(build_source, build_sink)
    )
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
    reporting.report_often()
    reporting.step([], 2_000)
    reporting.changed = True
    assert reporting.wakes_at() == 22_000


def test_a_shard_is_only_asked_if_something_happened_to_it_since_its_last_report() -> None:
    port: Any = Mock()
    reporting = Reporting(port, Mock(), ReportPace())
    quiet, changed, alone, source = map(_served, ("quiet", "changed", "alone", "source"))
    alone.roots = frozenset()
    source.goes_with_others = True
    every = [quiet, changed, alone, source]
    reporting.step(every, 1_000)
    changed.mark_changed()
    for each in every:
        each.shard.commits.durable += 1
    reporting.at_once()
    reporting.step(every, 2_000)
    first, second = (
        [report.shard for report in call.args[0]["node"]] for call in port.report.call_args_list
    )
    assert first == ["quiet", "changed", "alone", "source"]
    assert second == ["changed", "source"], "one that goes with others may go with the clock"


def _served(name: str) -> Served:
    shard: Any = Mock()
    shard.watermark = Mock(
        floor=0,
        held=lambda now_us: Hold(0, "input"),
        in_words=lambda hold: hold.holder,
        shares={},
    )
    shard.commits.durable = 1
    shard.verdicts = Mock(version=0, counters=dict)
    shard.operator = Mock(news=None, has_chain=False, fellows=None)
    shard.meta.counters = {}
    shard.identity = Mock(shard=name, token=1)
    return Served(shard, NodeName("node"), frozenset({"a source"}), life=LIVE)
