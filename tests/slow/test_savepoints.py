from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import REPO, Run, count_rows, rows_of
from tests.slow.waits import until

pytestmark = pytest.mark.slow

OLD = """
pipeline: clicks
streams:
  clicks:
    source: {files: {path: "${input}/*.jsonl", format: jsonl, follow: true}}
    timestamp: {field: t, unit: s}
    watermark: {max_delay: 0s}
computations:
  numbered:
    input: {clicks: {key: user}}
    callback: counting:Counting
    output: numbers
  by_minute:
    input: {clicks: {key: user}}
    window: {tumbling: 1m}
    aggregate: {clicks: count}
    output: minutes
sinks:
  numbers: {files: {path: "${output}/numbers", flush: 100ms}}
  minutes: {files: {path: "${output}/minutes", flush: 100ms}}
"""
ADDED = """
  hours:
    input: {clicks: {key: user}}
    window: {tumbling: 1h}
    aggregate: {clicks: count}
    output: hours
sinks:
  hours: {files: {path: "${output}/hours", flush: 100ms}}
"""
CODE = """
import msgspec
from millwheel import Computation, ValueState

class Seen(msgspec.Struct):
    count: int = 0

class Counting(Computation):
    seen = ValueState(Seen, default=Seen)

    def process_record(self, ctx, record):
        seen = self.seen.get()
        seen.count += 1
        ctx.produce("numbers", {"user": ctx.key, "n": record.value["n"], "count": seen.count,
          "code": "old"})
"""
NEW_CODE = CODE.replace("count: int = 0", "count: int = 0\n    last: int | None = None").replace(
    '"old"', '"new"'
)
USERS = 7


class Clicks:
    """A file that grows, and what must follow from it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "clicks.jsonl"
        self.rows: list[dict[str, Any]] = []

    def grow(self, count: int) -> None:
        first = len(self.rows)
        fresh = [
            {"user": f"u{n % USERS}", "n": n, "t": 1_700_000_000 + n // 10}
            for n in range(first, first + count)
        ]
        self.rows += fresh
        with self.file.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in fresh)

    def per(self, seconds: int, first: int = 0) -> Counter[tuple[str, int]]:
        return Counter((row["user"], row["t"] - row["t"] % seconds) for row in self.rows[first:])


def command(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "millwheel", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=150,
        cwd=folder,
    )


def done(*words: str, folder: Path | None = None) -> str:
    ended = command(*words, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr + ended.stdout


@pytest.fixture
def running() -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.end()


def pipeline(folder: Path, text: str, code: str) -> Path:
    folder.mkdir()
    (folder / "clicks.yaml").write_text(text)
    (folder / "counting.py").write_text(code)
    return folder / "clicks.yaml"


def test_a_pipeline_goes_on_from_a_savepoint_elsewhere_with_other_code_and_is_drained(
    tmp_path: Path, running: list[Run]
) -> None:
    clicks = Clicks(tmp_path / "input")
    out = tmp_path / "out"
    params = {"input": str(tmp_path / "input"), "output": str(out)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    old = pipeline(tmp_path / "old", OLD, CODE)
    new = pipeline(tmp_path / "new", OLD.replace("sinks:\n", ADDED[1:]), NEW_CODE)
    sets = ("--set", f"input={params['input']}", "--set", f"output={out}")

    clicks.grow(3_000)
    first = Run(old, tmp_path / "a", params, workers=2).start()
    running.append(first)
    until(lambda: count_rows(out / "numbers") >= 500, first)
    clicks.grow(20_000)
    said = done("savepoint", str(tmp_path / "saved"), "--root", str(first.root))
    assert "24 shards of 6 nodes" in said
    clicks.grow(1_000)
    until(lambda: count_rows(out / "numbers") == len(clicks.rows), first)

    done("stop", "--savepoint", str(tmp_path / "last"), "--root", str(first.root))
    assert first.wait(120).code == 0, first.said
    before = len(clicks.rows)
    minutes = rows_of(out / "minutes")
    assert len(minutes) < len(clicks.per(60))
    again = command("run", str(old), *sets, "--launcher", "processes", "--root", str(first.root))
    assert again.returncode == 1
    assert "was stopped with the savepoint" in again.stderr

    told = done("explain-upgrade", str(tmp_path / "last"), str(new), *sets)
    assert "the type of state 'seen' has changed and reads the old values" in told
    clicks.grow(5_000)
    second = Run(
        new, tmp_path / "b", params, workers=1, more=("--from-savepoint", str(tmp_path / "last"))
    ).start()
    running.append(second)
    until(lambda: count_rows(out / "numbers") == len(clicks.rows), second)
    said = done("stop", "--drain", "--root", str(second.root))
    assert second.wait(120).code == 0, second.said
    assert "Drained" in said

    numbers = rows_of(out / "numbers")
    users = Counter(row["user"] for row in clicks.rows)
    assert Counter((row["user"], row["count"]) for row in numbers) == Counter(
        {(user, n): 1 for user, count in users.items() for n in range(1, count + 1)}
    )
    codes = {n: "old" if n < before else "new" for n in range(len(clicks.rows))}
    assert {row["n"]: row["code"] for row in numbers} == codes
    got = Counter(
        {
            (row["user"], row["window_start"] // 1_000_000): row["clicks"]
            for row in rows_of(out / "minutes")
        }
    )
    assert got == clicks.per(60)
    hours = Counter(
        {
            (row["user"], row["window_start"] // 1_000_000): row["clicks"]
            for row in rows_of(out / "hours")
        }
    )
    assert hours == clicks.per(3600, before)


def test_what_cannot_be_is_said_before_anything_is_started(tmp_path: Path) -> None:
    old = pipeline(tmp_path / "old", OLD, CODE)
    (tmp_path / "input").mkdir()
    sets = ("--set", f"input={tmp_path / 'input'}", "--set", f"output={tmp_path / 'out'}")
    ended = command(
        "run",
        str(old),
        *sets,
        "--launcher",
        "processes",
        "--from-savepoint",
        str(tmp_path / "none"),
    )
    assert ended.returncode == 1
    assert "contains no savepoint" in ended.stderr
    ended = command("stop", "--drain", "--savepoint", str(tmp_path / "s"))
    assert ended.returncode == 1
    assert "give one of them" in ended.stderr


FAILING = """
  failing:
    input: {clicks: {key: user}}
    window: {tumbling: 1m}
    aggregate: {total: {sum: user}}
    output: totals
sinks:
  totals: {files: {path: "${output}/totals", flush: 100ms}}
"""


def test_what_the_refusal_names_gets_a_run_that_fails_at_once_out_of_its_root(
    tmp_path: Path, running: list[Run]
) -> None:
    clicks, out = Clicks(tmp_path / "input"), tmp_path / "out"
    params = {"input": str(tmp_path / "input"), "output": str(out)}
    for name in "abc":
        (tmp_path / name).mkdir()
    broken = OLD.replace("sinks:\n", FAILING[1:])
    mended = broken.replace("    output: totals", "    on_error: dead_letter\n    output: totals")
    old = pipeline(tmp_path / "old", broken, CODE)
    new = pipeline(tmp_path / "new", OLD.replace("sinks:\n", ADDED[1:]), NEW_CODE)
    clicks.grow(2_000)
    first = Run(old, tmp_path / "a", params, workers=1).start()
    running.append(first)
    assert first.wait(120).code == 3, first.said

    refused = Run(new, tmp_path / "b", params, workers=1, place=str(first.root)).start()
    running.append(refused)
    assert refused.wait(60).code == 1, refused.said
    assert "with on_error: dead_letter for what fails" in refused.said
    assert f"`millwheel stop --root {first.root} --savepoint FOLDER`" in refused.said

    old.write_text(mended)
    clicks.grow(500)
    again = Run(old, tmp_path / "a", params, workers=1).start()
    running.append(again)
    until(lambda: count_rows(out / "numbers") == len(clicks.rows), again)
    done("stop", "--savepoint", str(tmp_path / "saved"), "--root", str(first.root))
    assert again.wait(120).code == 0, again.said

    clicks.grow(500)
    last = Run(
        new, tmp_path / "c", params, workers=1, more=("--from-savepoint", str(tmp_path / "saved"))
    ).start()
    running.append(last)
    until(lambda: count_rows(out / "numbers") == len(clicks.rows), last)
    done("stop", "--drain", "--root", str(last.root))
    assert last.wait(120).code == 0, last.said
    users = Counter(row["user"] for row in clicks.rows)
    assert Counter((row["user"], row["count"]) for row in rows_of(out / "numbers")) == Counter(
        {(user, n): 1 for user, count in users.items() for n in range(1, count + 1)}
    )
