"""Pipelines in Python on real workers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import EXAMPLES, Run, rows_of

pytestmark = pytest.mark.slow

PIPELINE = """\
from millwheel import Computation, FileSink, FileSource, Pipeline, Tumbling, ValueState, agg, param

FACTOR = 3


class Running(Computation):
    total = ValueState(int, default=0)

    def process_record(self, ctx, record):
        self.total.set(self.total.get() + record.value["n"])
        ctx.produce("running", {"word": ctx.key, "total": self.total.get()})


def build():
    p = Pipeline("words")
    lines = p.read("lines", FileSource(param("input"), "jsonl"), timestamp="ts",
      timestamp_unit="us")

    def split(line):
        return [{"word": word, "n": line["n"] * FACTOR} for word in line["text"].split()]

    words = lines.flat_map(split, name="words").filter(lambda value: value["word"] != "the",
      name="wanted")
    words.key_by("word").process(Running, name="running").write(FileSink("${output}/running"))
    (
        words.key_by(lambda value: value["word"][0])
        .window(Tumbling("1m"))
        .aggregate({"words": agg.count(), "n": agg.sum("n")}, output="letters")
        .write(FileSink("${output}/letters"))
    )
    return p


words = build()
other = Pipeline("other")
"""
TEXTS = ("the cat sat", "a cat and the dog", "one dog", "the end")


def words(folder: Path, count: int) -> tuple[str, list[Any]]:
    """The pipeline's file and its input, in a folder."""
    home = folder / "home"
    home.mkdir()
    (home / "words.py").write_text(PIPELINE)
    lines = [{"ts": n * 1_000_000, "n": n % 7, "text": TEXTS[n % len(TEXTS)]} for n in range(count)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"{home}/words.py:words", lines


def assert_right(folder: Path, lines: list[Any]) -> None:
    """What came out is what plain Python says."""
    totals: Counter[str] = Counter()
    letters: Counter[tuple[str, int]] = Counter()
    running = []
    for line in lines:
        for word in [word for word in line["text"].split() if word != "the"]:
            totals[word] += line["n"] * 3
            running.append((word, totals[word]))
            letters[word[0], line["ts"] // 60_000_000 * 60_000_000] += 1
    assert sorted((row["word"], row["total"]) for row in rows_of(folder / "running")) == sorted(
        running
    )
    found = {(row["key"], row["window_start"]): row["words"] for row in rows_of(folder / "letters")}
    assert found == dict(letters)


def test_lambdas_and_nested_functions_run_on_workers_and_give_the_right_rows(
    tmp_path: Path,
) -> None:
    pipeline, lines = words(tmp_path, 3_000)
    params = {"input": str(tmp_path / "in.jsonl"), "output": str(tmp_path / "out")}
    run = Run(Path(pipeline), tmp_path, params).start().until_reading()
    run.kill_at_random(("millwheel.engine.workers",), seed=5, times=1, pause_s=(0.0, 0.1))
    run.wait()
    assert run.code == 0, run.said
    assert_right(tmp_path / "out", lines)


def test_an_example_gives_the_same_rows_in_both_forms(tmp_path: Path) -> None:
    found = {}
    for form in ("yaml", "py"):
        folder = tmp_path / form
        folder.mkdir()
        run = (
            Run(
                EXAMPLES / "zeitgeist" / f"pipeline.{form}", folder, {"output": str(folder / "out")}
            )
            .start()
            .wait()
        )
        assert run.code == 0, run.said
        found[form] = {
            sink: sorted(json.dumps(row, sort_keys=True) for row in rows_of(folder / "out" / sink))
            for sink in ("by_hour", "alerts")
        }
    assert found["yaml"] == found["py"]
    assert len(found["py"]["by_hour"]) > 1000
