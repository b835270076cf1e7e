from __future__ import annotations

import enum
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millwheel.api import Computation, Domain
from millwheel.core.model.limits import Limits
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.operators.callback_context import (
    CallbackContext,
    counted,
    moment,
    timer_domain,
    timer_tag,
)
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import EndlessTimerError, RecordError
from millwheel.tools.testing import PipelineHarness, pipeline_harness
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.bench import ShardBench, computation, pipeline


def context(limits: Limits = Limits(), identified: bool = False) -> tuple[CallbackContext, Bundle]:
    overlay = Overlay(SimStore({}))
    made = CallbackContext(
        frozenset({"out"}), KeyedState(Computation(), overlay, 10, 1000), limits, identified
    )
    bundle = Bundle(1, 500, 100, [], overlay, {domain: TimerQueue(domain) for domain in Domain})
    made.begin(bundle)
    made.point("ann", 120)
    return made, bundle


def test_a_production_has_the_key_and_time_of_its_cause_unless_it_says_otherwise() -> None:
    made, bundle = context()
    made.produce("out", {"n": 1})
    made.produce("out", {"n": 2}, timestamp=130, key="bob")
    out = bundle.outputs.streams["out"]
    assert (out.keys, out.timestamps, out.ids) == (["ann", "bob"], [120, 130], [b"", b""])


def test_nothing_is_produced_before_its_cause_or_to_no_output() -> None:
    made, _ = context()
    with pytest.raises(RecordError, match="lies 1 µs before the record"):
        made.produce("out", {}, timestamp=119)
    with pytest.raises(
        RecordError, match="'elsewhere' is not an output of this computation; its outputs: out"
    ):
        made.produce("elsewhere", {})


def test_ids_name_the_cause_and_the_number_of_the_production() -> None:
    def ids() -> list[bytes]:
        made, bundle = context(identified=True)
        made.point("ann", 120, ("up", 7))  # type: ignore[arg-type]
        made.produce("out", 1)
        made.produce("out", 1)
        return bundle.outputs.streams["out"].ids

    assert ids() == ids()
    assert len(set(ids())) == 2


def test_a_timer_for_a_time_that_has_passed_asks_to_be_settled() -> None:
    made, _ = context()
    made.set_timer("later", 100)
    assert not made.passed
    made.set_timer("clock", 1, Domain.PROCESSING)
    assert not made.passed
    made.set_timer("past", 99)
    assert made.passed


def test_a_key_may_have_so_many_timers_and_may_move_them() -> None:
    made, bundle = context(Limits(timers=2))
    made.set_timer("a", 200)
    made.set_timer("b", 200)
    made.set_timer("a", 300)
    with pytest.raises(RecordError, match="2 timers of this key wait already"):
        made.set_timer("c", 200)
    made.cancel_timer("b")
    made.set_timer("c", 200)
    assert len(bundle.timers[Domain.EVENT]) == 2


@pytest.mark.parametrize("name", ["records_in", "late", "two words", ""])
def test_a_counter_of_the_user_has_a_name_of_its_own(name: Any) -> None:
    made, bundle = context()
    made.count("retries", 3)
    assert bundle.outputs.counted == [("retries", 3)]
    with pytest.raises(RecordError, match="cannot name a counter"):
        made.count(name)


class Tag(str, enum.Enum):
    SOON = "soon"


def test_tags_are_plain_text() -> None:
    assert timer_tag("set_timer", "a\0b", 100) == "a\0b"
    assert type(timer_tag("set_timer", Tag.SOON, 100)) is str
    assert timer_tag("set_timer", "ä" * 50, 100) == "ä" * 50
    for wrong in (5, None, b"a", "\0a", "\ud83d", "ä" * 51):
        with pytest.raises(RecordError, match="set_timer"):
            timer_tag("set_timer", wrong, 100)


def test_times_are_whole_numbers_within_the_range() -> None:
    assert moment("produce", np.int64(5)) == 5
    assert moment("produce", 2**70) == LAST_TIME
    assert moment("produce", -(2**70)) == MIN_TIME
    for wrong in (1.5, "1", None, True):
        with pytest.raises(RecordError, match="whole number of µs"):
            moment("produce", wrong)


def test_domains_are_domains() -> None:
    assert timer_domain("set_timer", Domain.EVENT) is Domain.EVENT
    with pytest.raises(RecordError, match=r"Domain\.EVENT"):
        timer_domain("set_timer", "event")


@pytest.mark.parametrize(
    ("by", "number"), [(1, 1), (-3, -3), (True, 1), (np.int32(7), 7), (2**63 - 1, 2**63 - 1)]
)
def test_counters_take_whole_numbers(by: Any, number: int) -> None:
    name, found = counted("retries", by)
    assert (name, found, type(found)) == ("retries", number, int)


SECOND = 1_000_000


class Beats(Computation):
    """Beats ``beats`` times for each record (None: for ever), each time by a timer as ``by``
    says."""

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
streams: {{hits: {{source: {{files: {{path: in, format: jsonl}}}}, timestamp: {{field: at,
  unit: us}}}}}}
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
def test_timers_that_set_timers_for_ever_are_an_error_in_words(
    tmp_path: Path, by: Any, callback: str
) -> None:
    Beats.by = staticmethod(by)
    with pytest.raises(
        EndlessTimerError,
        match=r"set_timer 'beat\d*': timers have set timers 50 times .*key '[ab]'",
    ):
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


def test_in_a_run_the_step_waits_to_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_harness, "Assembly", _Judging)
    with harness(tmp_path) as made:
        made.push("hits", {"user": "a", "at": 0})
        made.finish()
        rows = len(made.read("out"))
        made.advance_processing_time(100 * SECOND)
        assert len(made.read("out")) == rows <= 51
