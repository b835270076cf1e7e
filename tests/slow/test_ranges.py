"""Splits, merges, moves and other numbers of workers while a pipeline runs in real processes: the
results are those of one that was left alone."""

from __future__ import annotations

import io
import json
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import tile
from millwheel.tools.cli.change import ranges
from millwheel.tools.cli.change.ranges import scale
from tests.slow.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ROW = ("shard", "first", "last", "owner", "busy", "records/s")
PIPELINE = """
pipeline: ranges
streams:
  events:
    source: {generator: {rate: 2000, keys: 40}}
    timestamp: ts
computations:
  counting:
    input: {events: {key: key}}
    callback: counting:Counting
    output: numbered
  totals:
    input: {numbered: {key: key}}
    window: {tumbling: 1s}
    aggregate: {records: count, last: {max: number}}
    output: totals
sinks:
  numbered: {files: {path: "${out}/numbered", format: jsonl, flush: 200ms}}
  totals: {files: {path: "${out}/totals", format: jsonl, flush: 200ms}}
"""
CALLBACK = """
from millwheel import Computation, ValueState

class Counting(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx, record):
        self.seen.set(self.seen.get() + 1)
        ctx.produce("numbered", {"key": ctx.key, "number": self.seen.get()})
"""


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


class Tool:
    """``millwheel ranges`` and ``millwheel scale`` on the root of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.place = str(run.root)
        self.said = io.StringIO()
        self.console = Console(file=self.said, width=200)

    def shards(self, node: str) -> list[list[str]]:
        """The rows of ``millwheel ranges show``."""
        shown = io.StringIO()
        ranges.show(self.place, node, Console(file=shown, width=200))
        return [line.split() for line in shown.getvalue().splitlines()[1:] if line.strip()]

    def owners(self, node: str) -> set[str]:
        return {row[3].partition("-")[0] for row in self.shards(node)}

    def until(self, what: str, holds: Callable[[], bool], within_s: float = 60) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.shards('')}"
            assert self.run.process.poll() is None, f"{what}: the run has ended"
            time.sleep(0.05)


def test_a_run_is_split_merged_moved_and_scaled_and_its_results_are_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "ranges.yaml").write_text(PIPELINE)
    (tmp_path / "counting.py").write_text(CALLBACK)
    out = {"out": str(tmp_path / "out")}
    run = Run(tmp_path / "ranges.yaml", tmp_path, out, more=("--no-balance",)).start()
    run.until_reading()
    tool = Tool(run)
    ranges.split(tool.place, "counting-0", "", "", tool.console)
    ranges.split(tool.place, "totals-2", "", "k7", tool.console)
    tool.until(
        "both are split",
        lambda: (len(tool.shards("counting")), len(tool.shards("totals"))) == (5, 5),
    )
    scale(tool.place, 3, 60, tool.console)
    tool.until("the third worker is used", lambda: tool.owners("counting") == {"w0", "w1", "w2"})
    ranges.merge(tool.place, "counting-2", "counting-3", tool.console)
    tool.until("two are merged", lambda: len(tool.shards("counting")) == 4)
    scale(tool.place, 1, 60, tool.console)
    assert tool.owners("") == {"w0"}
    check_results(run)


def check_results(run: Run) -> None:
    """Stop the run, in which no process died, and look at its rows."""
    check_rows(run)
    assert "restart" not in run.said


def check_rows(run: Run) -> None:
    """Stop the run. Each record was numbered once, in the state of its key, and counted in one
    window: what is visible is a prefix of what a run without any changes says."""
    run.process.send_signal(signal.SIGINT)
    run.wait(60)
    assert run.code == 0, run.said
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in rows(run.folder / "out" / "numbered"):
        numbers[row["key"]].append(row["number"])
    assert sum(map(len, numbers.values())) > 1_000
    for found in numbers.values():
        assert sorted(found) == list(range(1, len(found) + 1))
    windows: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows(run.folder / "out" / "totals"):
        windows[row["key"]].append((row["window_start"], row["records"], row["last"]))
    assert windows
    for closed in windows.values():
        sums = accumulate(records for _, records, _ in sorted(closed))
        assert list(sums) == [last for _, _, last in sorted(closed)]


SKEWED = """
pipeline: skewed
streams:
  events:
    source: {generator: {rate: 1200, factory: "skewed:make"}}
    timestamp: ts
computations:
  counting:
    input: {events: {key: key}}
    callback: skewed:Slow
    output: numbered
  totals:
    input: {numbered: {key: key}}
    window: {tumbling: 1s}
    aggregate: {records: count, last: {max: number}}
    output: totals
sinks:
  numbered: {files: {path: "${out}/numbered", format: jsonl, flush: 200ms}}
  totals: {files: {path: "${out}/totals", format: jsonl, flush: 200ms}}
"""
SLOW = (
    CALLBACK
    + """
import time

class Slow(Counting):
    def process_record(self, ctx, record):
        ends = time.perf_counter() + 0.0004
        while time.perf_counter() < ends:
            pass
        super().process_record(ctx, record)

KEYS = @keys

def make(index, partition):
    return {"key": KEYS[0] if index % 5 < 2 else KEYS[index % len(KEYS)],
      "ts": 1_767_225_600_000_000 + index * 833}
"""
)


@pytest.mark.long
def test_a_skewed_run_is_split_and_balanced_by_itself_and_its_results_are_the_same(
    tmp_path: Path,
) -> None:
    crowded = [key for key in map("k{}".format, range(400)) if key_hash(key) in tile(4)[0]][:20]
    (tmp_path / "skewed.yaml").write_text(SKEWED)
    (tmp_path / "skewed.py").write_text(SLOW.replace("@keys", repr(crowded)))
    run = Run(tmp_path / "skewed.yaml", tmp_path, {"out": str(tmp_path / "out")}).start()
    run.until_reading()
    tool = Tool(run)
    assert len(tool.shards("counting")) == 4

    def balanced() -> bool:
        """Both workers do a good part of the work, which was all in one shard."""
        busy: Counter[str] = Counter()
        for row in tool.shards("counting"):
            if len(row) == len(ROW):
                busy[row[3]] += float(row[4].rstrip("%"))
        return len(busy) == 2 and min(busy.values()) >= 10

    tool.until("both workers work", balanced, 120)
    assert len(tool.shards("counting")) > 4
    check_results(run)
