"""Runs of real processes whose code is wrong: stopped with a sentence, mended, and gone on with."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import Run, count_rows
from tests.slow.waits import until

pytestmark = pytest.mark.slow

RECORDS = 1_000
PIPELINE = """
pipeline: visits
streams:
  hits: {source: {files: {path: "${input}", format: jsonl, follow: "${follow}"}}, timestamp: at}
computations:
  visits: {input: {hits: {key: user}}, callback: "visits:Visits", output: out}
  seconds:
    input: {out: {key: user}}
    window: {tumbling: 1s}
    aggregate: {sum: {sum: next}}
    output: sums
sinks:
  sums: {files: {path: "${output}/sums"}}
  out: {files: {path: "${output}/out", flush: 50ms}}
"""
CODE = """
from millwheel import Computation


class Visits(Computation):
    def process_record(self, ctx, record):
        ctx.produce("out", {"user": record.key, "next": %s})
"""


def rows_of(folder: Path) -> list[Any]:
    return sorted(row for path in folder.glob("*.jsonl") for row in path.read_text().splitlines())


def pipeline(folder: Path, code: str, records: int) -> Path:
    (folder / "visits.py").write_text(CODE % code)
    lines = [
        {"user": n % 7, "page": str(n) if n % 10 else n, "at": n * 10_000} for n in range(records)
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return folder / "pipeline.yaml"


def run(folder: Path, code: str, follow: str = "false", records: int = RECORDS) -> Run:
    params = {"input": str(folder / "in.jsonl"), "output": str(folder / "out"), "follow": follow}
    return Run(pipeline(folder, code, records), folder, params, "processes").start()


def test_a_broken_computation_stops_the_run_and_a_mended_one_goes_on_as_if_it_had_never_failed(
    tmp_path: Path,
) -> None:
    for name in ("right", "mended"):
        (tmp_path / name).mkdir()
    right = run(tmp_path / "right", "int(record.value['page']) + 1").wait(120)
    assert right.code == 0, right.said
    broken = run(tmp_path / "mended", "record.value['page'] + 1").wait(120)
    assert broken.code == 3, broken.said
    assert "TypeError" in broken.said
    assert "visits.py:7" in broken.said
    assert "10% of at least 100" in broken.said
    mended = run(tmp_path / "mended", "int(record.value['page']) + 1").wait(120)
    assert mended.code == 0, mended.said
    assert mended.summary["dead_letters"] == 0
    assert rows_of(tmp_path / "mended" / "out" / "sums") == rows_of(
        tmp_path / "right" / "out" / "sums"
    )
    assert rows_of(tmp_path / "right" / "out" / "sums")


def test_what_was_a_dead_letter_before_there_were_enough_to_judge_by_is_tried_again_too(
    tmp_path: Path,
) -> None:
    def letters() -> int:
        return count_rows(tmp_path / "root" / "dead_letters")

    broken = run(tmp_path, "record.value['page'] + 1", "true", 60)
    until(lambda: letters() >= 54)
    pipeline(tmp_path, "record.value['page'] + 1", RECORDS)
    broken.wait(60)
    assert broken.code == 3, broken.said
    assert "dead letters of this one again" in broken.said
    mended = run(tmp_path, "int(record.value['page']) + 1", "true")
    until(lambda: count_rows(tmp_path / "out" / "out") >= RECORDS)
    mended.process.send_signal(signal.SIGINT)
    mended.wait(60)
    rows = [json.loads(row) for row in rows_of(tmp_path / "out" / "out")]
    assert sorted(row["next"] for row in rows) == list(range(1, RECORDS + 1))
