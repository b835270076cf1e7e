"""A pipeline without input costs next to nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from tests.slow.runs import Run

pytestmark = pytest.mark.slow

PIPELINE = """
    pipeline: quiet
    streams:
      hits:
        source: {files: {path: in/*.jsonl, format: jsonl, follow: true}}
        timestamp: {field: at, unit: s}
        watermark: {max_delay: 1s, idle_after: 2s}
    computations:
      counts: {input: {hits: {key: page}}, window: {tumbling: 1s}, aggregate: {hits: count},
        output: counts}
    sinks:
      counts: {files: {path: out/counts, format: jsonl}}
"""
SETTLE_S, MEASURE_S = 21, 8
MOST = 0.08
"""Of a core, for each worker: a busy loop takes far more; what a quiet machine measures is in
docs/performance.md."""


def test_the_workers_of_a_quiet_pipeline_sleep(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"page": f"p{n % 7}", "at": 1_700_000_000 + n / 100}) for n in range(5_000)]
    (tmp_path / "in" / "hits.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "quiet.yaml").write_text(dedent(PIPELINE))
    run = Run(tmp_path / "quiet.yaml", tmp_path).start().until_reading()
    time.sleep(SETTLE_S)
    workers = run.processes("millwheel.engine.workers")
    assert len(workers) == 2
    before = [used(worker) for worker in workers]
    time.sleep(MEASURE_S)
    shares = [(used(worker) - old) / MEASURE_S for worker, old in zip(workers, before, strict=True)]
    print("of a core:", [round(share, 4) for share in shares])
    run.end()
    run.wait()
    assert max(shares) < MOST
    assert list(tmp_path.glob("out/counts/*.jsonl"))


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
