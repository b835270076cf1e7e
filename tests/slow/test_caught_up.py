"""Runs that end once they have caught up: a day's files each, one worker killed in the middle, and
one run over all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import Run, rows_of

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: days
streams:
  clicks: {source: {files: {path: "${input}/*.jsonl", format: jsonl, follow: true}},
    timestamp: {field: ts, unit: us},
           watermark: {max_delay: 1s}}
computations:
  per_minute:
    input: {clicks: {key: page}}
    window: {tumbling: 1m}
    aggregate: {n: count}
    output: counts
sinks:
  counts: {files: {path: "${output}/counts", flush: 100ms}}
"""
MINUTE = 60
PER_SECOND = 50


def write(folder: Path, first_s: int, last_s: int) -> None:
    """A file with the records of some seconds."""
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"page": f"p{n % 3}", "ts": at * 1_000_000})
        for at in range(first_s, last_s)
        for n in range(PER_SECOND)
    ]
    (folder / f"from-{first_s}.jsonl").write_text("\n".join(lines) + "\nnot a record\n")


def caught_up(tmp_path: Path, name: str, kills: bool = False) -> Run:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    params = {"input": str(tmp_path / f"in-{name}"), "output": str(folder / "out")}
    run = Run(tmp_path / "p.yaml", folder, params, more=("--until-caught-up",)).start()
    if kills:
        run.until_committed()
        killed = run.kill_at_random(
            ("millwheel.engine.workers",), seed=3, times=1, pause_s=(0.0, 0.02)
        )
        assert killed["millwheel.engine.workers"] == 1
    run.wait()
    assert run.code == 0, run.said
    assert bool(run.summary["restarts"]) is kills, "the kill came too late"
    assert "Caught up." in run.said
    return run


def counts(run: Run) -> list[Any]:
    return sorted(
        rows_of(run.folder / "out" / "counts"), key=lambda row: (row["window_start"], row["page"])
    )


def test_runs_that_catch_up_day_by_day_are_one_run_over_all_days(tmp_path: Path) -> None:
    days = [(0, 5 * MINUTE), (5 * MINUTE, 11 * MINUTE + 30)]
    write(tmp_path / "in-daily", *days[0])
    first = counts(caught_up(tmp_path, "daily", kills=True))
    assert [row["window_start"] // 60_000_000 for row in first] == [
        minute for minute in range(4) for _ in "ppp"
    ]
    write(tmp_path / "in-daily", *days[1])
    daily = caught_up(tmp_path, "daily")
    for day in days:
        write(tmp_path / "in-once", *day)
    once = caught_up(tmp_path, "once")
    assert counts(daily) == counts(once)
    assert sum(row["n"] for row in counts(daily)) == 11 * MINUTE * PER_SECOND
    kept = ("records_in", "records_out", "late", "dead_letters")
    assert [daily.summary[name] for name in kept] == [once.summary[name] for name in kept]
    assert daily.summary["dead_letters"] == 2
