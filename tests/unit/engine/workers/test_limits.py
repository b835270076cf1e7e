"""What is over a limit, through the real runtime: it becomes a dead letter with its reason, the
rest counts."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness

CODE = """
    from millwheel import Computation, ListState, MapState, ValueState

    class Growing(Computation):
        text = ValueState(str, default="")
        items = ListState(str)
        table = MapState(str)

        def process_record(self, ctx, record):
            value = record.value
            if "add" in value:
                self.text.set(self.text.get() + "x" * value["add"])
            if "item" in value:
                self.items.append("x" * value["item"])
            if "entry" in value:
                self.table["e"] = "x" * value["entry"]
            for number in range(value.get("timers", 0)):
                ctx.set_timer(f"t{number}", record.timestamp + 1_000_000)
            if "key" in value:
                ctx.produce("out", {"n": value["n"]}, key="k" * value["key"])
            ctx.produce("out", {"n": value["n"], "blob": "x" * value.get("blob", 0)})

        def process_timer(self, ctx, timer):
            ctx.produce("out", {"rung": timer.tag})
"""
PIPELINE = """
    pipeline: limited
    streams:
      given: {source: injection, timestamp: ts}
    computations:
      growing: {input: {given: {key: user}}, callback: "growing_code:Growing", output: [out]}
      by_n: {input: {out: {}}, map: "growing_code:same", output: again}
    sinks:
      again: {stdout: {}}
      dead_letters: {stdout: {}}
    limits: {record: 4kB, key: 100B, state: 2kB, timers_per_key: 5}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "growing_code.py").write_text(
        textwrap.dedent(CODE) + "\n\ndef same(value):\n    return value\n"
    )
    (tmp_path / "p.yaml").write_text(textwrap.dedent(PIPELINE))
    return tmp_path / "p.yaml"


def run(pipeline: Path, *records: dict[str, Any]) -> tuple[list[int], list[dict[str, Any]]]:
    """(numbers that came out, dead letters)."""
    with PipelineHarness(str(pipeline)) as harness:
        for number, record in enumerate(records):
            harness.push("given", {"user": "ann", "ts": 1_000_000, "n": number, **record})
        out = [row["n"] for row in harness.read("again") if "n" in row]
        return out, harness.read("dead_letters")


@pytest.mark.parametrize(
    ("bad", "option"),
    [
        ({"blob": 5_000}, "limits.record (4kB)"),
        ({"pad": "x" * 5_000}, "limits.record (4kB)"),
        ({"user": "x" * 200}, "limits.key (100B)"),
        ({"key": 200}, "limits.key (100B)"),
        ({"add": 3_000}, "limits.state (2kB)"),
        ({"item": 3_000}, "limits.state (2kB)"),
        ({"entry": 3_000}, "limits.state (2kB)"),
        ({"timers": 6}, "limits.timers_per_key"),
    ],
)
def test_what_is_over_a_limit_is_a_dead_letter_and_the_rest_counts(
    pipeline: Path, bad: dict[str, Any], option: str
) -> None:
    out, letters = run(pipeline, {"add": 10}, bad, {"timers": 5, "blob": 100})
    assert out == [0, 2]
    assert len(letters) == 1
    assert option in letters[0]["reason"]


def test_state_that_grows_over_the_limit_keeps_what_it_was(pipeline: Path) -> None:
    with PipelineHarness(str(pipeline)) as harness:
        for number in range(4):
            harness.push("given", {"user": "ann", "ts": 1_000_000, "n": number, "add": 900})
        assert [row["n"] for row in harness.read("again")] == [0, 1]
        harness.crash()
        assert harness.state("growing", "ann")["text"] == "x" * 1800


def test_a_moved_timer_is_none_more(pipeline: Path) -> None:
    out, letters = run(pipeline, {"timers": 5}, {"timers": 5, "ts": 1_200_000})
    assert (out, letters) == ([0, 1], [])


def test_a_key_under_the_limit_waits_with_others_that_have_many_timers(pipeline: Path) -> None:
    out, letters = run(
        pipeline, {"timers": 5}, {"user": "bob", "timers": 5}, {"user": "bob", "timers": 6}
    )
    assert out == [0, 1]
    assert letters[0]["key"] == "bob"
