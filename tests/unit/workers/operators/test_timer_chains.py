"""Timers that set timers after the end of the input: as often as the limit says, then the run is stopped in words."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation
from millwheel.api import Domain
from millwheel.core.model.limits import Limits
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import EndlessTimerError
from millwheel.testing import PipelineHarness, pipeline_harness
from millwheel.workers.host.assembly import Assembly
from millwheel.workers.shard.bundle_sizes import ShardLimits
from tests.unit.workers.bench import ShardBench, computation, pipeline

SECOND = 1_000_000


class Beats(Computation):
    """Beats ``beats`` times for each record (None: for ever), each time by a timer as ``by`` says."""

    beats: int | None = None
    by: Any = staticmethod(lambda at: ("beat", Domain.EVENT))
    fails: int = 0

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.set_timer("beat", record.timestamp + SECOND)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", {"user": timer.key, "at": timer.at})
        if type(self).beats is None or timer.at < type(self).beats * SECOND:
            tag, domain = type(self).by(timer.at)
            ctx.set_timer(tag, timer.at + SECOND, domain)
        if timer.at == type(self).fails:
            raise ValueError("a reason to try again")


class Windowed(Beats):
    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        ctx.set_timer("beat", window.end)


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("beats", "by", "fails"):
        monkeypatch.setattr(Beats, name, Beats.__dict__[name])


def harness(tmp_path: Path, callback: str = "Beats", **options: Any) -> PipelineHarness:
    (tmp_path / "beats.yaml").write_text(
        f"""
pipeline: beats
streams: {{hits: {{source: {{files: {{path: in, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}}}
computations:
  beats:
    input: {{hits: {{key: user}}}}
    callback: {__name__}:{callback}
    {"window: {tumbling: 1s}" if callback == "Windowed" else ""}
    output: out
sinks: {{out: {{files: {{path: out, format: jsonl}}}}}}
limits: {{timers_after_end: 50}}
"""
    )
    return PipelineHarness(tmp_path / "beats.yaml", **options)


def ended(made: PipelineHarness) -> int:
    with made:
        made.push("hits", [{"user": user, "at": 0} for user in "ab"])
        made.finish()
        return len(made.read("out"))


@pytest.mark.parametrize("callback", ["Beats", "Windowed"])
@pytest.mark.parametrize(
    "by",
    [
        lambda at: ("beat", Domain.EVENT),
        lambda at: (f"beat{at}", Domain.EVENT),
        lambda at: ("beat", Domain.PROCESSING),
    ],
    ids=["one tag", "ever new tags", "by the wall clock"],
)
def test_timers_that_set_timers_for_ever_are_an_error_in_words(tmp_path: Path, by: Any, callback: str) -> None:
    Beats.by = staticmethod(by)
    with pytest.raises(EndlessTimerError, match=r"set_timer 'beat\d*': timers have set timers 50 times .*key '[ab]'"):
        ended(harness(tmp_path, callback))


def test_timers_without_end_are_found_however_often_workers_die() -> None:
    spec = replace(pipeline(computation(callback="bench:It")), limits=Limits(chain=3))
    bench = ShardBench(Beats, limits=ShardLimits(timers=1), spec=spec)
    bench.deliver(("a", 1, 10))
    bench.through()
    for beat in range(4):  # each by another owner
        bench.crash()
        bench.watermark(MAX_TIME)
        with pytest.raises(EndlessTimerError, match="3 times") if beat == 3 else nullcontext():
            bench.shard.run(bench.now)
        bench.waiting += bench.shard.commits.submittable(bench.now)
        bench.settle()


@pytest.mark.parametrize("crash_every", [None, 3])
def test_timers_that_stop_in_time_all_fire(tmp_path: Path, crash_every: int | None) -> None:
    Beats.beats = 51
    assert ended(harness(tmp_path, crash_every=crash_every)) == 2 * 51


def test_what_is_tried_again_counts_once(tmp_path: Path) -> None:
    Beats.beats, Beats.fails = 51, 51 * SECOND
    assert ended(harness(tmp_path)) == 2 * 50


def test_while_input_may_come_timers_go_on(tmp_path: Path) -> None:
    with harness(tmp_path) as made:
        made.push("hits", {"user": "a", "at": 0})
        made.advance_watermark(1_000 * SECOND)
        assert len(made.read("out")) == 999


def test_records_that_set_timers_do_not_count(tmp_path: Path) -> None:
    Beats.beats = 1
    with harness(tmp_path) as made:
        made.push("hits", [{"user": "a", "at": n * SECOND} for n in range(200)])
        made.finish()
        assert len(made.read("out")) == 1


class _Judging(Assembly):
    """As in a worker's process."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stop_broken()


def test_in_a_run_the_step_waits_to_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_harness, "Assembly", _Judging)
    with harness(tmp_path) as made:
        made.push("hits", {"user": "a", "at": 0})
        made.finish()
        rows = len(made.read("out"))
        made.advance_processing_time(100 * SECOND)
        assert len(made.read("out")) == rows <= 51
