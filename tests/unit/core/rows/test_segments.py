"""The first rows of keys in columns: bundle by bundle what the row form says and keeps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.order.labels import NO_USE
from millwheel.core.pipeline.work import TopSpec
from millwheel.core.rows.columns import first_columns, first_rows_or_why
from millwheel.core.rows.ranking import Ranking
from millwheel.core.rows.segments import FirstRowSegments, rows_by_key
from millwheel.core.windows.panes import retracted
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: at
    fields: {item: int, who: str, cents: int, part: float, ok: bool, at: int}
computations:
  best: {input: {bids: {key: %s}}, %s, output: best}
"""
WORK = [
    "top: {by: [cents desc, who], k: 3, rank: place}",
    "top: {by: [part desc], k: 3}",
    "top: {by: [who desc, part], k: 2, rank: who}",
    "top: {by: [cents * 2], k: 1}",
    "deduplicate: {keep: last}",
    "deduplicate: {keep: first}",
]
Row = dict[str, Any]


def drawn(rng: random.Random, count: int) -> list[tuple[int, Row]]:
    """Records, many of them alike."""
    return [
        (
            rng.randrange(40),
            {
                "item": rng.choice([0, 1, -3, 2**40]),
                "who": rng.choice(["a", "é", "zz"]),
                "cents": rng.randrange(4),
                "part": rng.choice([0.0, -0.0, 1.5]),
                "ok": rng.choice([True, None]),
                "at": 7,
            },
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("key", ["item", "who", "[item, cents]", "[who, item]"])
@pytest.mark.parametrize("work", WORK)
def test_columns_say_and_keep_what_rows_do(tmp_path: Path, work: str, key: str) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE % (key, work))
    spec = load_pipeline(tmp_path / "p.yaml")
    best = spec.computations[0]
    plan = first_rows_or_why(best, spec, compile_expression)
    assert isinstance(plan, ColumnPlan)
    columns = first_columns(best, spec, plan, NO_USE, compile_expression)
    assert columns is not None
    ranking, names = Ranking(best.work_as(TopSpec), compile_expression), plan.key_names
    rng = random.Random(work + key)
    segments, rows = FirstRowSegments(fan=2), dict[Key, list[Any]]()
    for _ in range(30):
        some = drawn(rng, rng.randrange(1, 12))
        schema = {"item": pl.Int64, "who": pl.String, "cents": pl.Int64, "part": pl.Float64}
        frame = pl.DataFrame([row for _, row in some], {**schema, "ok": pl.Boolean, "at": pl.Int64})
        keys = key_column([frame[name] for name in names])
        times = np.array([at for at, _ in some])
        batch = ColumnBatch("bids", np.array([], np.int64), times, keys, frame)
        assert columns.fitting(batch, None).all()
        held = [segment.groups for segment in segments.segments()]
        changed = columns.changed(columns.taken(batch), held)
        if changed is not None:
            segments.add(changed.rows)
        said = [] if changed is None else [*told(changed.gone), *told(changed.new)]
        assert sorted(map(repr, said)) == sorted(map(repr, of_rows(ranking, rows, some, names)))
        kept = rows_by_key([segment.groups for segment in segments.segments()])
        assert repr_of(kept) == repr_of(
            {key: [(each[2], each[1]) for each in entries] for key, entries in rows.items()}
        )


def repr_of(kept: dict[Key, list[Any]]) -> dict[Key, str]:
    return {key: repr(rows) for key, rows in kept.items()}


def told(batch: ColumnBatch) -> list[Any]:
    rows = batch.rows()
    return list(zip(key_list(batch.keys), rows.timestamps, rows.values, strict=True))


def of_rows(
    ranking: Ranking,
    kept: dict[Key, list[Any]],
    some: list[tuple[int, Row]],
    names: tuple[str, ...],
) -> list[Any]:
    """What the row form says of a bundle; what it keeps changes."""
    by_key: dict[Key, list[Record]] = {}
    for at, row in some:
        parts = tuple(row[name] for name in names)
        key = parts if len(parts) > 1 else parts[0]
        by_key.setdefault(key, []).append(Record(key, row, at, "bids"))
    said: list[Any] = []
    for key, records in by_key.items():
        before = kept.get(key, [])
        after = ranking.added(before, records)
        kept[key] = after
        if after is before:
            continue
        gone, new = ranking.differences(before, after)
        times = [record.timestamp for record in records]
        said += [(key, max(times), retracted(row)) for row in gone]
        said += [(key, at if at >= min(times) else max(times), row) for row, at in new]
    return said
