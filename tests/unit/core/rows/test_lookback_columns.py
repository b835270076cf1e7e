"""Look-backs in columns: step by step the aggregates that the records before each one give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.model.times import MAX_TIME
from millwheel.core.order.labels import NO_USE
from millwheel.core.rows import lookback_columns
from millwheel.core.rows.columns import lookback_form, lookbacks_or_why
from millwheel.core.rows.kept_records import AT
from millwheel.core.rows.lookback_columns import LookbackForm, LookbackSegments
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams: {sales: {source: {injection: {}}, timestamp: at}}
computations:
  plain: {input: {sales: {key: a}}, map: {a: a, v: v, part: part}, output: plain}
  o:
    input: {plain: {key: a}}
    over: %s
    aggregate: {n: count, total: {sum: v}, least: {min: part}, most: {max: v},
      odd: {min: {of: v, where: v %% 2 == 1}}, kinds: {count_distinct: v}}
    output: o
"""
Row = tuple[int, int, int, float]


def form(folder: Path, over: str) -> LookbackForm | str:
    (folder / "p.yaml").write_text(PIPELINE % over)
    spec = load_pipeline(folder / "p.yaml")
    plans = lookbacks_or_why(spec.computations[1], spec, NO_USE, compile_expression)
    if not isinstance(plans, PlansByType):
        return plans
    made = lookback_form(spec.computations[1], spec, plans)
    assert made is not None
    return made


def batch(rows: list[Row]) -> ColumnBatch:
    schema = {"a": pl.Int64, "v": pl.Int64, "part": pl.Float64}
    frame = pl.DataFrame([(a, v, part) for a, _, v, part in rows], schema, orient="row")
    times = np.array([at for _, at, _, _ in rows], np.int64)
    return ColumnBatch("plain", np.array([], np.int64), times, frame["a"], frame)


def whole(rows: list[Row], size: int) -> list[Any]:
    made = []
    for key in {row[0] for row in rows}:
        of_key = sorted((row for row in rows if row[0] == key), key=lambda row: row[1])
        for index, (a, _, v, part) in enumerate(of_key):
            some = of_key[max(0, index + 1 - size) : index + 1]
            values = [each[2] for each in some]
            odd = min((v for v in values if v % 2), default=None)
            least = min(each[3] for each in some)
            made.append(
                (a, v, part, len(some), sum(values), least, max(values), odd, len({*values}))
            )
    return sorted(map(repr, made))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("fan", [2, 16])
def test_each_record_gets_the_aggregates_of_its_look_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fan: int
) -> None:
    monkeypatch.setattr(lookback_columns, "_AT_ONCE", 7)
    made, rng = form(tmp_path, f"{{rows: {size}}}"), random.Random(f"{size} {fan}")
    assert isinstance(made, LookbackForm)
    segments, rows, said, times = LookbackSegments(True, size, fan), list[Row](), list[Any](), 0
    for step in range(40):
        # each time once, so that the order is known
        new = [
            (rng.randrange(3), step * 100 + at, rng.randrange(9), rng.choice([0.0, 1.5, -2.25]))
            for at in rng.sample(range(300), rng.randrange(1, 12))
        ]
        new = [row for row in new if row[1] not in {each[1] for each in rows}]
        columns = made.of(pl.Struct(dict(batch(new).frame.schema)))
        assert columns is not None
        assert columns.fitting(batch(new), segments.row_type).all()
        segments.add(columns.taken(batch(new)))
        rows += new
        watermark = (step + 1) * 100 if step < 39 else MAX_TIME
        if segments.fires_at() < watermark:
            said += columns.results(segments.segments(), watermark).frame.rows()
            times += 1
        segments.take(watermark)
        assert segments.fires_at() >= watermark
    assert times > 10
    assert sorted(map(repr, said)) == whole(rows, size)
    segments.numbers()  # their bounds are those of their records
    if fan == 2:  # what has left all look-backs goes as segments are put together
        assert sum(each.groups.height for each in segments.segments()) < len(rows) // 2


def test_shards_that_have_taken_records_up_to_different_times_become_one(tmp_path: Path) -> None:
    made = form(tmp_path, "{rows: 2}")
    assert isinstance(made, LookbackForm)
    columns = made.of(pl.Struct(dict(batch([]).frame.schema)))
    assert columns is not None
    ahead, behind = ([(key, at, at, 0.5) for at in (10, 20, 30)] for key in (1, 2))
    segments = LookbackSegments(True, 2, fan=2)
    for number, (rows, fired) in enumerate(((ahead, 25), (behind, 15))):
        segments.restore(number, 0, columns.taken(batch(rows)), 15, fired)
    assert segments.taken_until == 25  # a record before that is one that comes too late
    assert segments.fires_at() == 20
    assert columns.results(segments.segments(), 26).frame.select("a", "total").rows() == [(2, 30)]
    segments.take(26)
    rows = columns.results(segments.segments(), 31).frame.select("a", "total").rows()
    assert sorted(rows) == [(1, 50), (2, 50)]


def test_a_range_has_the_records_of_its_own_time_and_no_others_for_ever(tmp_path: Path) -> None:
    file = form(tmp_path, "{range: 10us}")
    assert not isinstance(file, LookbackForm)
    segments = LookbackSegments(False, 10, fan=2)
    times, codes = np.array([1, 5, 5, 15, 16, 5]), np.array([0, 0, 0, 0, 0, 1])
    first, after = lookback_columns._in_range(times, codes, 10)
    assert (first.tolist(), after.tolist()) == ([0, 0, 0, 1, 3, 5], [1, 3, 3, 4, 5, 6])
    segments.add(pl.DataFrame({KEY: [1, 2], AT: [5, 9]}))
    assert segments.fires_at() == segments.due_at() == 5
    segments.take(10)
    assert (segments.fires_at(), segments.due_at()) == (MAX_TIME, 19)
    segments.take(20)
    assert not segments


def test_of_records_of_one_time_those_that_may_be_in_a_look_back_stay() -> None:
    segments = LookbackSegments(True, 3, fan=2)
    frame = pl.DataFrame({KEY: [1, 1, 1, 1, 2], AT: [1, 5, 5, 6, 1]})
    segments.take(6)
    assert segments.merge([frame]).to_dict(as_series=False) == {
        KEY: [1, 1, 1, 2],
        AT: [5, 5, 6, 1],
    }
    segments.take(7)
    assert segments.merge([frame])[AT].to_list() == [5, 5, 6, 1]


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ("{rows: all}", "each record changes a sum"),
        ("{rows: 3, ttl: 1m}", "each key is forgotten by itself"),
        ("{range: 1m}", "a look-back for kinds is merged from parts"),
        ("{rows: 65}", "a look-back for kinds is merged from parts"),
    ],
)
def test_what_is_in_rows_says_why(tmp_path: Path, over: str, why: str) -> None:
    assert form(tmp_path, over) == why
