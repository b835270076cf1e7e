"""The check for crashes passes what is right and finds what is wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes
from millwheel.tools.testing.crashes import push_all

PIPELINE = """
    pipeline: counting
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      count: {input: {clicks: {key: user}}, callback: "count:CLASS", output: counted}
      totals:
        input: {counted: {key: user}}
        window: {tumbling: 10us}
        aggregate: {most: {max: number}}
        output: totals
"""
CODE = """
    from millwheel import Computation, ValueState

    class Durable(Computation):
        number = ValueState(int, default=0)

        def process_record(self, ctx, record):
            self.number.set(self.number.get() + 1)
            ctx.produce("counted", {"user": ctx.key, "number": self.number.get()})

    class Forgetful(Computation):
        def __init__(self):
            self.numbers = {}

        def process_record(self, ctx, record):
            self.numbers[ctx.key] = self.numbers.get(ctx.key, 0) + 1
            ctx.produce("counted", {"user": ctx.key, "number": self.numbers[ctx.key]})

    written = []

    class Outside(Computation):
        number = ValueState(int)

        def process_record(self, ctx, record):
            written.append(record.value)
            self.number.set(len(written))
"""
CLICKS = {"clicks": [{"user": user, "at": n} for n, user in enumerate("abbabac")]}


def _pipeline(folder: Path, name: str) -> Path:
    (folder / "count.py").write_text(textwrap.dedent(CODE))
    (folder / "p.yaml").write_text(textwrap.dedent(PIPELINE).replace("CLASS", name))
    return folder / "p.yaml"


def test_a_computation_that_keeps_its_state_survives_a_crash_anywhere(tmp_path: Path) -> None:
    assert assert_survives_crashes(_pipeline(tmp_path, "Durable"), CLICKS, every=9) > 20


def test_one_that_keeps_it_in_memory_does_not(tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"after a crash at unit \d+ of \d+, stream counted differs.*Missing"
    ):
        assert_survives_crashes(_pipeline(tmp_path, "Forgetful"), CLICKS)


def test_one_that_writes_outside_does_not(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"the state of count differs"):
        assert_survives_crashes(_pipeline(tmp_path, "Outside"), CLICKS)


def test_a_story_may_do_whatever_a_test_does(tmp_path: Path) -> None:
    def story(harness: PipelineHarness) -> None:
        harness.push("clicks", [{"user": "a", "at": 1}, {"user": "a", "at": 2}])
        harness.advance_watermark(10)
        assert harness.take("totals") == [
            {"user": "a", "window_start": 0, "window_end": 10, "most": 2}
        ]
        harness.push("clicks", {"user": "a", "at": 3})

    assert_survives_crashes(_pipeline(tmp_path, "Durable"), story, every=5, shards=1, workers=1)


WEAK = """
    pipeline: weak
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      names: {input: {clicks: {key: user}}, callback: "count:Names", output: names,
        productions: weak}
      totals: {input: {names: {key: user}}, window: global, aggregate: {clicks: count},
        output: totals}
"""
NAMES = """
    from millwheel import Computation

    class Names(Computation):
        def process_record(self, ctx, record):
            ctx.produce("names", {"user": ctx.key})
"""


def test_weak_productions_count_once_wherever_it_crashes(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(textwrap.dedent(NAMES))
    (tmp_path / "p.yaml").write_text(textwrap.dedent(WEAK))
    assert_survives_crashes(tmp_path / "p.yaml", CLICKS, every=11)


@pytest.mark.parametrize("crash_every", [1, 10, 40])
def test_crashing_without_end_there_is_progress_nevertheless(
    tmp_path: Path, crash_every: int
) -> None:
    (tmp_path / "count.py").write_text(textwrap.dedent(NAMES))
    (tmp_path / "p.yaml").write_text(textwrap.dedent(WEAK))
    with PipelineHarness(tmp_path / "p.yaml", crash_every=crash_every) as harness:
        push_all(harness, CLICKS)
        assert {row["user"]: row["clicks"] for row in harness.read("totals")} == {
            "a": 3,
            "b": 3,
            "c": 1,
        }
        assert harness.crashes > 5


@pytest.mark.parametrize("every", [0, -1])
def test_every_must_be_a_step(tmp_path: Path, every: Any) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        assert_survives_crashes(_pipeline(tmp_path, "Durable"), CLICKS, every=every)
