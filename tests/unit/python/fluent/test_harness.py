"""Pipelines in Python in the test harness: from a file, and made in the test itself."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel import (
    Computation,
    FileSink,
    FileSource,
    InjectionSource,
    KeyedStream,
    Pipeline,
    StdoutSink,
    Tumbling,
    ValueState,
    agg,
    param,
)
from millwheel.testing import PipelineHarness
from tests.unit.python.fluent.test_twins import EXAMPLES

MINUTE = 60_000_000


class Running(Computation):
    total = ValueState(int, default=0)

    def __init__(self, step: int) -> None:
        self.step = step

    def process_record(self, ctx: Any, record: Any) -> None:
        self.total.set(self.total.get() + self.step * record.value["n"])
        ctx.produce("running", {"word": ctx.key, "total": self.total.get()})


def made_here(limit: int) -> Pipeline:
    pipeline = Pipeline("words")
    lines = pipeline.read(
        "lines", FileSource(param("input"), "jsonl"), timestamp="ts", timestamp_unit="us"
    )
    words: KeyedStream = (
        lines.flat_map(
            lambda line: [{"word": word, "n": len(word)} for word in line["text"].split()]
        )
        .filter(lambda value: value["n"] < limit)
        .key_by(lambda value: value["word"])
    )
    words.process(Running, options={"step": param("step", 1)}, output="running").write(
        FileSink(param("output"))
    )
    words.window(Tumbling("1m")).aggregate({"n": agg.count()}, output="minutes").write(StdoutSink())
    return pipeline


@pytest.mark.parametrize("crash_every", [None, 1, 3])
def test_a_pipeline_made_in_a_test_runs_with_its_lambdas(crash_every: int | None) -> None:
    with PipelineHarness(made_here(4), params={"step": 2}, crash_every=crash_every) as harness:
        harness.push(
            "lines", [{"text": "the cat saw the whale", "ts": 1}, {"text": "a cat", "ts": 2}]
        )
        harness.push("lines", {"ts": 3})
        harness.finish()
        found = sorted((row["word"], row["total"]) for row in harness.read("running"))
        assert found == [("a", 2), ("cat", 6), ("cat", 12), ("saw", 6), ("the", 6), ("the", 12)]
        assert {row["key"]: row["n"] for row in harness.read("minutes")} == {
            "a": 1,
            "cat": 2,
            "saw": 1,
            "the": 2,
        }
        (letter,) = harness.read("dead_letters")
        assert "KeyError: 'text'" in letter["reason"]
        assert letter["location"].startswith("test_harness.py:")


def test_two_pipelines_of_a_test_do_not_see_each_others_functions() -> None:
    with PipelineHarness(made_here(2)) as few, PipelineHarness(made_here(9)) as many:
        for harness in (few, many):
            harness.push("lines", {"text": "a whale", "ts": 1})
        assert [len(harness.read("running")) for harness in (few, many)] == [1, 2]


def test_a_pipeline_of_a_file_runs() -> None:
    with PipelineHarness(str(EXAMPLES / "ads" / "pipeline.py")) as harness:
        harness.push(
            "events",
            {"ts": 1, "event_id": "a", "type": "click", "ad_id": 1, "client_id": 2, "cost": 60.0},
        )
        harness.finish()
        assert len(harness.read("over_budget")) == 1


def test_a_pipeline_by_the_name_of_its_variable_runs(tmp_path: Path) -> None:
    text = "from millwheel import *\na = Pipeline('a')\nb = Pipeline('b')\n"
    text += "b.read('x', InjectionSource(), timestamp='t').map(lambda v: v['n'] * 2, name='y')\n"
    (tmp_path / "two.py").write_text(text)
    with PipelineHarness(f"{tmp_path}/two.py:b") as harness:
        harness.push("x", {"t": 1, "n": 21})
        assert harness.read("y") == [42]


class Lengths(Computation):
    def __init__(self, above: int = 0) -> None:
        self.above = above

    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        texts = [record.value["text"] for record in records]
        ctx.produce(
            "long" if max(map(len, texts)) > self.above else "short",
            {"texts": texts, "end": window.end},
        )


def test_a_window_hands_its_records_to_a_class() -> None:
    pipeline = Pipeline("words")
    lines = pipeline.read("lines", FileSource("none", "jsonl"), timestamp="ts", timestamp_unit="us")
    windows = lines.key_by("who").window(Tumbling("1m"), allowed_lateness="1m")
    long, _ = windows.process(
        Lengths, output=["long", "short"], options={"above": 3}, where="text != ''"
    )
    long.write(StdoutSink())
    with PipelineHarness(pipeline) as harness:
        lines_of_ann = [{"who": "ann", "text": text, "ts": 1} for text in ("a", "", "whale")]
        harness.push("lines", [*lines_of_ann, {"who": "bob", "text": "cat", "ts": 2}])
        harness.finish()
        assert harness.read("long") == [{"texts": ["a", "whale"], "end": MINUTE}]
        assert harness.read("short") == [{"texts": ["cat"], "end": MINUTE}]


def test_records_of_a_key_give_the_same_together_as_one_by_one() -> None:
    """docs/pipeline.md, Records together."""

    class Totals(Computation):
        total = ValueState(int, default=0)

        def process_batch(self, ctx: Any, records: Any) -> None:
            sizes.append(len(records))
            for record in records:
                self.total.set(self.total.get() + record.value["n"])
                ctx.produce(
                    "totals",
                    {"key": ctx.key, "total": self.total.get()},
                    timestamp=record.timestamp,
                )

    p = Pipeline("p")
    p.read("hits", InjectionSource(), timestamp="at", timestamp_unit="us").key_by("k").process(
        Totals, output="totals"
    )
    hits = [{"k": "ab"[n % 2], "n": n, "at": n} for n in range(10)]
    told: list[Any] = []
    sizes: list[int] = []
    for pushes in ([hits], [[hit] for hit in hits]):
        with PipelineHarness(p) as harness:
            for values in pushes:
                harness.push("hits", values)
            told.append(sorted(harness.take("totals"), key=lambda row: (row["key"], row["total"])))
    assert told[0] == told[1]
    assert max(sizes) == 5


@pytest.mark.parametrize("window", [Tumbling("1m"), None])
def test_several_streams_are_joined_exactly(window: Tumbling | None) -> None:
    pipeline = Pipeline("joined")
    a, b, c = (
        pipeline.read(
            name,
            InjectionSource(),
            timestamp="at",
            timestamp_unit="us",
            fields={"at": int, "who": str, "price": "decimal(9, 2)"},
        ).key_by("who")
        for name in "abc"
    )
    both = a.join([b, c], window, name="both")
    sums = both.map({"who": "who", "sum": "a.price + b.price + c.price"}, output="sums")
    sums.write(StdoutSink())
    with PipelineHarness(pipeline) as harness:
        for stream, price in (("a", "0.10"), ("b", "0.20"), ("c", "0.05")):
            harness.push(stream, {"at": 1, "who": "w", "price": price})
        harness.finish()
        assert harness.read("sums") == [{"who": "w", "sum": Decimal("0.35")}]


def test_a_record_is_there_for_each_entry_of_a_list() -> None:
    pipeline = Pipeline("words")
    lines = pipeline.read("lines", InjectionSource(), timestamp="at", timestamp_unit="us")
    words = lines.flat_map({"word": "split(text, ' ')"}).map({"word": "upper(word)"}, name="words")
    words.write(StdoutSink())
    with PipelineHarness(pipeline) as harness:
        harness.push("lines", {"at": 1, "text": "so it"})
        harness.finish()
        assert harness.read("words") == [{"word": "SO"}, {"word": "IT"}]
