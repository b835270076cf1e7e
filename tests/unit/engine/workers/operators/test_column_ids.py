"""External ids of records in columns: a copy counts once, as in rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    events,
    exact,
    idle,
    pipeline,
    run_of,
    small_reads,
    written,
)


def with_ids(folder: Path, declared: bool, name: str, ids: str) -> str:
    """The pipeline over records with ids; copies lie next to each other, far from each other, and
    in another file."""
    path = Path(pipeline(folder, declared))
    text = path.read_text().replace("ts: int}", f"ts: int, name: {name}}}")
    path.write_text(text.replace("timestamp:", f"id: {ids}\n    timestamp:"))
    return str(path)


def copied(count: int, seed: int, name: type) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    named = [{**event, "name": name(index)} for index, event in enumerate(events(count, seed))]
    for index in range(3, count, 5):
        named.insert(min(index + rng.choice([1, 2, count // 3]), len(named)), named[index])
    return named


@pytest.mark.parametrize("form", ["declared", "guessed"])
@pytest.mark.parametrize(("name", "kind"), [("int", int), ("str", str)])
@pytest.mark.parametrize(
    "dirt", [[], ["{no json", '{"ad": 1, "type": "view", "cost": 1.5, "ts": 1004000}']]
)
def test_copies_are_dropped_from_columns_as_from_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    name: str,
    kind: type,
    dirt: list[Any],
) -> None:
    small_reads(monkeypatch)
    read: list[bool] = []
    read_frame = SourceOperator._read_frame
    monkeypatch.setattr(
        SourceOperator, "_read_frame", lambda *args: read.append(read_frame(*args)) or read[-1]
    )
    first = copied(300, 1, kind)
    folder = written(tmp_path, {"a": [*first[:150], *dirt, *first[150:]], "b": first[:100]})
    path = with_ids(folder, form == "declared", name, "{field: name, horizon: 1h}")
    found = []
    for rows in (False, True):
        found.append(run_of(path, rows, ("minutes", "totals", "dead_letters"))[0])
        if not rows:
            assert sum(read) > 3, "most of the input is read as columns"
            read.clear()
    assert not any(read)
    assert exact(found[0]) == exact(found[1])
    assert found[0]["counters"]["duplicates"] > 50, found[0]["counters"]
    assert len(found[0]["minutes"]) > 10


@pytest.mark.parametrize("name", ["int", "str"])
def test_a_copy_counts_once_wherever_a_worker_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
    first = copied(120, 3, int if name == "int" else str)
    folder = written(tmp_path, {"a": first, "b": [*first[:30], "{no json", *first[60:90]]})
    path = with_ids(folder, True, name, "{field: name, horizon: 1h}")

    assert assert_survives_crashes(path, idle, every=19, run_sources=True) > 3


@pytest.mark.parametrize("how", ["weak", "divided"])
def test_ids_that_single_records_are_named_by_keep_them_in_rows(tmp_path: Path, how: str) -> None:
    written(tmp_path, {"a": copied(3, 1, int)})
    path = Path(with_ids(tmp_path, True, "int", "{field: name, horizon: 1h}"))
    changed = {"weak": "productions: weak", "divided": "skew: scatter(4)"}[how]
    path.write_text(
        path.read_text().replace(
            "    window: {tumbling: 10s}", f"    window: {{tumbling: 10s}}\n    {changed}"
        )
    )
    with PipelineHarness(str(path), run_sources=True, shards=1) as harness:
        [shard] = harness._cluster.shards_of("source.events")
        assert isinstance(shard.operator, SourceOperator)
        assert shard.operator._parts.needs is None
