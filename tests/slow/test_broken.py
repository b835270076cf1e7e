"""Runs of real processes whose code is wrong: stopped with a sentence, mended, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import Run

pytestmark = pytest.mark.slow

RECORDS = 1_000
PIPELINE = """
pipeline: visits
streams:
  hits: {source: {files: {path: "${input}", format: jsonl}}, timestamp: at}
computations:
  visits: {input: {hits: {key: user}}, callback: "visits:Visits", output: out}
  seconds:
    input: {out: {key: user}}
    window: {tumbling: 1s}
    aggregate: {sum: {sum: next}}
    output: sums
sinks:
  sums: {files: {path: "${output}/sums"}}
"""
CODE = """
from millwheel import Computation


class Visits(Computation):
    def process_record(self, ctx, record):
        ctx.produce("out", {"user": record.key, "next": %s})
"""


def rows_of(folder: Path) -> list[Any]:
    return sorted(row for path in folder.glob("*.jsonl") for row in path.read_text().splitlines())


def pipeline(folder: Path, code: str) -> Path:
    (folder / "visits.py").write_text(CODE % code)
    lines = [{"user": n % 7, "page": str(n) if n % 10 else n, "at": n * 10_000} for n in range(RECORDS)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return folder / "pipeline.yaml"


def run(folder: Path, code: str) -> Run:
    params = {"input": str(folder / "in.jsonl"), "output": str(folder / "out")}
    return Run(pipeline(folder, code), folder, params, "processes").start().wait(120)


def test_a_broken_computation_stops_the_run_and_a_mended_one_goes_on_as_if_it_had_never_failed(tmp_path: Path) -> None:
    for name in ("right", "mended"):
        (tmp_path / name).mkdir()
    right = run(tmp_path / "right", "int(record.value['page']) + 1")
    assert right.code == 0, right.said
    broken = run(tmp_path / "mended", "record.value['page'] + 1")
    assert broken.code == 3, broken.said
    assert "TypeError" in broken.said
    assert "visits.py:7" in broken.said
    assert "10% of at least 100" in broken.said
    mended = run(tmp_path / "mended", "int(record.value['page']) + 1")
    assert mended.code == 0, mended.said
    assert mended.summary["dead_letters"] == 0
    assert rows_of(tmp_path / "mended" / "out" / "sums") == rows_of(tmp_path / "right" / "out" / "sums")
    assert rows_of(tmp_path / "right" / "out" / "sums")
