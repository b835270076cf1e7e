"""Look-backs of records: a result for each, whatever is in blocks and in which parts they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import NamedAggregation
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.rows.lookback import Lookback, LookbackRow, growing_results

SPECS = [
    AggregateSpec("n", "count"),
    AggregateSpec("total", "sum", "v"),
    AggregateSpec("mean", "mean", "v"),
    AggregateSpec("least", "min", "v"),
    AggregateSpec("first", "first", "v"),
    AggregateSpec("last", "last", "v"),
    AggregateSpec("all", "collect", "v"),
    AggregateSpec("odd", "count", "", "v % 2 == 1"),
]


def aggregation() -> NamedAggregation:
    return compile_aggregation(SPECS, compile_expression)


@dataclass
class Held:
    """A block that is in memory."""

    held: list[LookbackRow]

    @property
    def count(self) -> int:
        return len(self.held)

    @property
    def first(self) -> int:
        return self.held[0][0]

    @property
    def last(self) -> int:
        return self.held[-1][0]

    def rows(self) -> list[LookbackRow]:
        return self.held

    def acc(self) -> Any:
        made = aggregation()
        return made.add_many(
            made.create(), [row for _, row in self.held], [at for at, _ in self.held]
        )


def expected(rows: list[tuple[int, int]], by_rows: bool, size: int | None) -> list[dict[str, Any]]:
    found = []
    for index, (at, _) in enumerate(rows):
        if by_rows:
            start = 0 if size is None else max(0, index + 1 - size)
            chosen = [v for _, v in rows[start : index + 1]]
        else:
            chosen = [v for t, v in rows if t <= at and (size is None or t >= at - size)]
        found.append(
            {
                "n": len(chosen),
                "total": sum(chosen),
                "mean": sum(chosen) / len(chosen),
                "least": min(chosen),
                "first": chosen[0],
                "last": chosen[-1],
                "all": chosen,
                "odd": sum(v % 2 for v in chosen),
            }
        )
    return found


rows_of = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=40).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)


@pytest.mark.parametrize("by_rows", [True, False])
@given(rows_of, st.integers(1, 7), st.integers(0, 40), st.lists(st.integers(1, 9), max_size=9))
def test_a_look_back_goes_on_from_blocks_and_recent_records(
    by_rows: bool, rows: list[tuple[int, int]], size: int, old: int, cuts: list[int]
) -> None:
    wanted = expected(rows, by_rows, size)
    made = aggregation()
    prepared = [(at, made.prepare({"v": v})) for at, v in rows]
    # the records of one time are one step of a range
    while not by_rows and 0 < old < len(rows) and rows[old - 1][0] == rows[old][0]:
        old += 1
    old = min(old, len(rows))
    left = 0
    if old and by_rows:
        left = max(0, old - (size - 1))
    elif old:
        left = sum(at < rows[old - 1][0] - size for at, _ in rows[:old])
    blocks, start = [], 0
    for cut in cuts:
        if start + cut <= old:
            blocks.append(Held(prepared[start : start + cut]))
            start += cut
    gone = left
    while blocks and gone >= blocks[0].count:
        gone -= blocks.pop(0).count
    recent = prepared[start:old]
    if not blocks:
        recent, gone = recent[gone:], 0
    lookback = Lookback(made, by_rows, size, blocks, recent, gone)
    results = [result for count, result in lookback.results(prepared[old:]) for _ in range(count)]
    assert results == wanted[old:]
    still = sum(block.count for block in blocks) - gone + len(recent) + len(rows) - old
    if old < len(rows):
        last = wanted[-1]["n"]
        assert still - lookback.dropped == last


def _whole(acc: Any) -> Any:
    return acc


@pytest.mark.parametrize("by_rows", [True, False])
@given(rows_of, st.integers(0, 40))
def test_a_look_back_that_nothing_leaves_is_one_accumulator(
    by_rows: bool, rows: list[tuple[int, int]], old: int
) -> None:
    made = aggregation()
    prepared = [(at, made.prepare({"v": v})) for at, v in rows]
    while not by_rows and 0 < old < len(rows) and rows[old - 1][0] == rows[old][0]:
        old += 1
    acc, before = growing_results(made, made.create, prepared[:old], by_rows, _whole)
    _, after = growing_results(
        made, lambda: made.create() if acc is None else acc, prepared[old:], by_rows, _whole
    )
    results = [result for count, result in [*before, *after] for _ in range(count)]
    assert results == expected(rows, by_rows, None)
