"""A pipeline of aggregations that columns can hold, its input, and what it gives in each form."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.windowed import WindowedOperator
from millwheel.testing import PipelineHarness

PIPELINE = """
pipeline: columns
streams:
  events:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: ts, unit: ms}}
    {fields}
    watermark: {{max_delay: 3s, max_future: null}}
computations:
  minutes:
    input: {{events: {{key: {key}}}}}
    window: {{tumbling: 10s}}
    {windowing}
    aggregate:
      views: {{count: {{where: "type == 'view'"}}}}
      spend: {{sum: cost}}
      mean: {{mean: cost}}
      most: {{max: cost}}
    output: minutes
  totals:
    input: {{minutes: {{key: {key}}}}}
    window: {{tumbling: 1m}}
    aggregate: {{rows: count, spend: {{sum: spend}}}}
    output: totals
"""
FIELDS = "fields: {ad: int, type: str, cost: float, ts: int}"
LISTS = """
      kinds: {count_distinct: type}
      costs: {count_distinct: {of: cost, where: "type == 'view'"}}
      half: {quantile: {of: "cost - 1", where: "type == 'view'"}, q: 0.5}
      about: {approx_count_distinct: {of: cost, where: "type == 'view'"}}
      abouts: {approx_count_distinct: type, lg_k: 4}
      roughly: {approx_count_distinct: "cost * 2", lg_k: 4}
"""
LONG_LISTS = """
      shares: {quantiles: cost, q: [0.1, 0.9]}
      best: {top_k: cost, k: 2}
"""


def events(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "ad": min(int(rng.expovariate(0.4)), 9),
            "type": rng.choice(["view", "click"]),
            "cost": round(rng.lognormvariate(0, 1), 3),
            "ts": 1_000_000 + index * 40 + rng.randrange(-4_000, 4_000),
            "other": "x" * rng.randrange(5),
        }
        for index in range(count)
    ]


def written(folder: Path, files: Mapping[str, list[Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def pipeline(folder: Path, declared: bool, windowing: str = "", key: str = "ad") -> str:
    path = folder / f"pipeline-{declared}.yaml"
    path.write_text(
        PIPELINE.format(
            folder=folder, fields=FIELDS if declared else "", windowing=windowing, key=key
        )
    )
    return str(path)


@contextmanager
def in_rows(wanted: bool = True) -> Iterator[None]:
    """Within it no computation has a column plan, whatever its fields."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(Assembly, "_column_plan", lambda self, computation: None)
        yield


def results(folder: Path, form: str, key: str = "ad", **options: Any) -> dict[str, Any]:
    """In ``columns``, in ``rows``, or in columns whose types are ``guessed``."""
    path = pipeline(folder, form == "columns", key=key)
    with in_rows(form == "rows"), PipelineHarness(path, run_sources=True, **options) as harness:
        harness.advance_processing_time(10**9)
        kinds = {type(shard.operator) for shard in harness._cluster.shards_of("minutes")}
        assert kinds == {WindowedOperator if form == "rows" else ColumnOperator}
        rows = {
            name: sorted(map(json.dumps, harness.read(name)))
            for name in ("minutes", "totals", "dead_letters")
        }
        return {**rows, "counters": harness.counters}


DIRTY: dict[str, list[Any]] = {
    "clean": [],
    "a broken line": ["{no json"],
    "a missing cost": [{"ad": 1, "type": "view", "ts": 1_001_000}],
    "no time": [{"ad": 1, "type": "view", "cost": 1.0}],
    "a whole cost": [{"ad": 1, "type": "view", "cost": 7, "ts": 1_002_000}],
    "a tiny cost": [{"ad": 1, "type": "view", "cost": 1e-14, "ts": 1_002_000}],
    "a huge cost": [{"ad": 1, "type": "view", "cost": 1e25, "ts": 1_002_000}],
}
