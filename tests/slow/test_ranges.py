"""Splits, merges, moves and other numbers of workers while a pipeline runs in real processes: the results are those of
one that was left alone."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.cli import ranges
from millwheel.cli.scale import scale
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

RECORDS = 30_000
PIPELINE = """
pipeline: ranges
streams:
  events:
    source: {generator: {rate: 2500, count: 30000, keys: 40, partitions: 2}}
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


def rows(folder: Path) -> list[dict[str, int]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


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

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.shards('')}"
            assert self.run.process.poll() is None, f"{what}: the run has ended"
            time.sleep(0.05)


def test_a_run_is_split_merged_moved_and_scaled_and_its_results_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "ranges.yaml").write_text(PIPELINE)
    (tmp_path / "counting.py").write_text(CALLBACK)
    run = Run(tmp_path / "ranges.yaml", tmp_path, {"out": str(tmp_path / "out")}).start()
    run.until_reading()
    tool = Tool(run)
    ranges.split(tool.place, "counting-0", "", "", tool.console)
    ranges.split(tool.place, "totals-2", "", "k7", tool.console)
    tool.until("both are split", lambda: (len(tool.shards("counting")), len(tool.shards("totals"))) == (5, 5))
    scale(tool.place, 3, 30, tool.console)
    tool.until("the third worker is used", lambda: tool.owners("counting") == {"w0", "w1", "w2"})
    ranges.merge(tool.place, "counting-2", "counting-3", tool.console)
    tool.until("two are merged", lambda: len(tool.shards("counting")) == 4)
    scale(tool.place, 1, 30, tool.console)
    assert tool.owners("") == {"w0"}
    run.wait(60)
    assert run.code == 0, run.said
    assert "restart" not in run.said
    check_results(tmp_path / "out")


def check_results(out: Path) -> None:
    """Each record was numbered once, in the state of its key, and counted in one window."""
    numbered = Counter((row["key"], row["number"]) for row in rows(out / "numbered"))
    most: Counter[int] = Counter()
    for key, number in numbered:
        most[key] = max(most[key], number)
    assert sum(most.values()) == RECORDS
    assert numbered == Counter({(key, n): 1 for key, count in most.items() for n in range(1, count + 1)})
    totals = rows(out / "totals")
    assert sum(row["records"] for row in totals) == RECORDS
    assert len({(row["key"], row["window_start"]) for row in totals}) == len(totals)
