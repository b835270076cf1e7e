"""Dead letters of real runs, tried again while everything is killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.slow.runs import REPO, Run, rows_of

pytestmark = pytest.mark.slow

RECORDS = 6_000
PIPELINE = """
pipeline: visits
streams:
  hits: {source: {files: {path: "${input}", format: jsonl}}, timestamp: at}
computations:
  visits: {input: {hits: {key: user}}, callback: "visits:Visits", output: out,
    on_error: dead_letter}
sinks:
  out: {files: {path: "${output}/out", flush: 50ms}}
"""
CODE = """
import time

from millwheel import Computation, ValueState


class Visits(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx, record):
        time.sleep(0.001)
        self.seen.set(self.seen.get() + 1)
        ctx.produce("out", {"n": record.value["n"], "seen": self.seen.get(), "next": %s})
"""


def run(folder: Path, code: str) -> Run:
    (folder / "visits.py").write_text(CODE % code)
    params = {"input": str(folder / "in.jsonl"), "output": str(folder / "out")}
    return Run(folder / "pipeline.yaml", folder, params, "processes").start()


def replay(folder: Path, kill_after_s: float | None = None) -> str:
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "replay",
        str(folder / "root"),
        "--reason",
        "TypeError",
    ]
    process = subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE, text=True)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        process.kill()
    return process.communicate()[1]


def test_letters_are_replayed_once_whoever_is_killed(tmp_path: Path) -> None:
    lines = [
        {"user": n % 7, "n": n, "page": str(n) if n % 2 else n, "at": n * 1_000}
        for n in range(RECORDS)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    broken = run(tmp_path, "record.value['page'] + 1").wait(120)
    assert broken.code == 0, broken.said
    assert broken.summary["dead_letters"] == RECORDS // 2
    assert "millwheel replay" in broken.said.splitlines()[-1]
    rng = random.Random(5)
    for _ in range(4):
        replay(tmp_path, rng.uniform(0.3, 1.2))
    replay(tmp_path)
    assert "0 dead letters are tried again" in replay(tmp_path)
    mended = run(tmp_path, "int(record.value['page']) + 1")
    mended.kill_at_random(
        ("millwheel.engine.workers", "millwheel.control.master", "millwheel.engine.workers"),
        3,
        4,
        (0.3, 1.0),
    )
    mended.wait(180)
    assert mended.code == 0, mended.said
    rows = rows_of(tmp_path / "out" / "out")
    assert Counter(row["n"] for row in rows) == Counter(range(RECORDS))
    assert Counter(row["seen"] for row in rows) == Counter(n // 7 + 1 for n in range(RECORDS))
    assert mended.summary["replayed"] == RECORDS // 2
    assert mended.summary["dead_letters"] == RECORDS // 2
