"""A pipeline of aggregations that columns can hold, its input, and what it gives in each form."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millwheel.connect.sources.base import FrameChunk
from millwheel.connect.sources.files.lines import LineReader
from millwheel.core.columns.declared_fields import frame_of
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.shard.admission import ShardLimits
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


EVENTS = """
pipeline: p
streams:
  events:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: ts, unit: ms}}
    fields: {{ad: int, type: str, cost: float, ts: int}}
    watermark: {{max_delay: {delay}, max_future: null}}
"""
"""The head of a pipeline of declared events."""


def declared_events() -> list[dict[str, Any]]:
    """Events of the fields that :data:`EVENTS` declares."""
    return [{name: each[name] for name in ("ad", "type", "cost", "ts")} for each in events(1800, 4)]


def of_events(folder: Path, computations: str, dirt: Sequence[Any] = ()) -> Path:
    """A pipeline with these computations of declared events. Some of the events are of one time,
    and alike but for what is not an order; in the middle of them comes ``dirt``."""
    made = declared_events()
    for number, each in enumerate(made):
        if number % 3 == 0:
            each["ts"], each["cost"] = made[max(number - 1, 0)]["ts"], number // 30 / 4
    written(folder / "in", {"a": [*made[:900], *dirt, *made[900:]]})
    file = folder / "p.yaml"
    head = EVENTS.format(folder=folder / "in", delay="20s")
    file.write_text(f"{head}computations:\n{computations}")
    return file


@contextmanager
def in_rows(wanted: bool = True) -> Iterator[None]:
    """Within it no computation has a column plan, whatever its fields."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(Assembly, "_column_plan", lambda self, computation: None)
        yield


def small_bundles(patch: pytest.MonkeyPatch, records: int = 20) -> None:
    """Bundles take so many records at the most."""
    patch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=records))


def never_few(patch: pytest.MonkeyPatch) -> None:
    """No bundle is so small that it goes by rows."""
    patch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, rows_below=0))


def small_reads(patch: pytest.MonkeyPatch, size: int = 4096, records: int = 20) -> None:
    """A read in columns takes so many bytes, and a bundle so many records."""
    by_bytes = LineReader.read_frame
    patch.setattr(
        LineReader, "read_frame", lambda self, position, most: by_bytes(self, position, size)
    )
    small_bundles(patch, records)


def same_bundles(patch: pytest.MonkeyPatch, records: int) -> None:
    """Bundles hold the same records in columns and in rows."""
    fields = {"ad": "int", "type": "str", "cost": "float", "ts": "int"}

    def by_records(self: Any, position: int, most_bytes: int) -> Any:
        chunk = self.read(position, records)
        frame, positions = frame_of(chunk.values, fields), np.array(chunk.positions, np.int64)
        return FrameChunk(positions, frame, chunk.next_position, chunk.rejects, chunk.finished)

    patch.setattr(LineReader, "read_frame", by_records)
    small_bundles(patch, records)


def run_of(
    path: str | Path, rows: bool, streams: Sequence[str] = ("minutes",), **options: Any
) -> tuple[dict[str, Any], list[Operator]]:
    """What a run makes in ``rows`` or not: the records of these streams, in an order of their own,
    and the counters. The operators of ``minutes``."""
    with in_rows(rows), PipelineHarness(path, run_sources=True, **options) as harness:
        harness.advance_processing_time(10**9)
        operators = [shard.operator for shard in harness._cluster.shards_of("minutes")]
        read = {name: sorted(harness.read(name), key=json.dumps) for name in streams}
        return {**read, "counters": harness.counters}, operators


def rows_by_key(harness: PipelineHarness, stream: str) -> dict[Any, list[tuple[int, str]]]:
    """The times and values of the records of each key, in their order."""
    rows: dict[Any, list[tuple[int, str]]] = {}
    for record in harness.records(stream):
        rows.setdefault(record.key, []).append((record.timestamp, json.dumps(record.value)))
    return rows


def letters_of(harness: PipelineHarness) -> list[Any]:
    """What dead letters say; tracebacks tell also what else was tried in the same bundle."""
    told = ("reason", "value", "timestamp", "key", "attempts", "state")
    return sorted([repr([each[name] for name in told]) for each in harness.read("dead_letters")])


def exact(found: Mapping[str, Any]) -> str:
    """As text, which tells 1 from 1.0 and the order of fields."""
    return json.dumps(found)


def idle(harness: PipelineHarness) -> None:
    """The story of a run that reads its sources to the end."""
    harness.advance_processing_time(10**9)


def in_bundles(records: Mapping[str, Sequence[Any]], size: int) -> Callable[..., None]:
    """The story of a run whose streams have their records by turns, ``size`` at a time: a crash at
    a place of it costs far less than among records that come one by one."""

    def story(harness: PipelineHarness) -> None:
        for start in range(0, max(map(len, records.values())), size):
            for stream, values in records.items():
                harness.push(stream, values[start : start + size])
        harness.finish()

    return story


def results(folder: Path, form: str, key: str = "ad", **options: Any) -> dict[str, Any]:
    """In ``columns``, in ``rows``, or in columns whose types are ``guessed``; as lines."""
    path = pipeline(folder, form == "columns", key=key)
    found, operators = run_of(
        path, form == "rows", ("minutes", "totals", "dead_letters"), **options
    )
    assert {type(each) for each in operators} == {
        WindowedOperator if form == "rows" else ColumnOperator
    }
    counters = found.pop("counters")
    return {
        **{name: list(map(json.dumps, each)) for name, each in found.items()},
        "counters": counters,
    }


DIRTY: dict[str, list[Any]] = {
    "clean": [],
    "a broken line": ["{no json"],
    "a missing cost": [{"ad": 1, "type": "view", "ts": 1_001_000}],
    "no time": [{"ad": 1, "type": "view", "cost": 1.0}],
    "a whole cost": [{"ad": 1, "type": "view", "cost": 7, "ts": 1_002_000}],
    "a tiny cost": [{"ad": 1, "type": "view", "cost": 1e-14, "ts": 1_002_000}],
    "a huge cost": [{"ad": 1, "type": "view", "cost": 1e25, "ts": 1_002_000}],
}
