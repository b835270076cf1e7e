"""Quantiles in columns have the bins of the row form, to the last value."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.aggregates.both_forms import VALUES, bundle_of, made_of, same_in_both_forms
from tests.unit.core.aggregates.test_base import _over

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("quantile", {"q": 0.5}),
    ("quantile", {"q": 0.99, "accuracy": 0.0001}),
    ("quantile", {"q": 0}),
    ("quantile", {"q": 1, "accuracy": 0.5}),
    ("quantiles", {"q": [0.1, 0.9]}),
]


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize(("function", "options"), OPTIONS)
@given(data=st.data())
def test_the_accumulator_and_the_result_are_those_of_rows(
    kind: str, function: str, options: dict[str, Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=20))
    spec = AggregateSpec("x", function, "f", options=options)
    same_in_both_forms(spec, kind, values, data.draw(st.integers(0, 20)))


@pytest.mark.parametrize("accuracy", [0.0001, 0.01, 0.5])
def test_values_at_the_edges_of_bins_are_in_the_bins_of_rows(accuracy: float) -> None:
    options = {"q": 0.5, "accuracy": accuracy}
    mapping = make_aggregator("quantile", options, None).mapping  # type: ignore[attr-defined]
    keys = range(
        -int(900 * mapping.ladder), int(900 * mapping.ladder), int(3 * mapping.ladder) or 1
    )
    edges = [math.pow(2.0, key / mapping.ladder) for key in keys]
    near = [
        around
        for edge in edges
        for around in (math.nextafter(edge, 0.0), edge, math.nextafter(edge, math.inf))
    ]
    limits = [mapping.min_possible, math.nextafter(mapping.min_possible, 1.0), 2.0**-1022, 1e300]
    same_in_both_forms(
        AggregateSpec("x", "quantile", "f", options=options), "float", [*near, *limits], 1000
    )


def test_records_that_the_condition_leaves_out_are_in_no_bin() -> None:
    made = made_of(AggregateSpec("x", "quantile", "f", "f < 3", {"q": 0.5}), "int")
    frame = bundle_of(made, "int", [5, 6])
    assert made.result(frame).to_list() == [None]
    assert made.to_acc(frame.to_dicts()[0]) == [0, {}, {}]


def test_groups_side_by_side_have_each_their_quantile() -> None:
    spec = AggregateSpec("x", "quantile", "f", "f < 3", {"q": 0.5})
    made, rows = made_of(spec, "int"), make_aggregator("quantile", {"q": 0.5}, None)
    groups = [[1, 2, 2], [7], [-1, 0, 0], [0], [-2, -1, -1]]
    found = made.result(pl.concat([bundle_of(made, "int", group) for group in groups])).to_list()
    expected = []
    for group in groups:
        acc = rows.create()
        for value in group:
            acc = rows.add(acc, value, 0) if value < 3 else acc
        expected.append(rows.result(acc))
    assert found == expected


def test_a_count_that_no_column_holds_says_so() -> None:
    made = made_of(AggregateSpec("x", "quantile", "f", options={"q": 0.5}), "int")
    for acc in ([0, {1: 2**38}, {}], [0, {1: -1}, {}]):
        with pytest.raises(Inexact):
            made.from_acc(acc)


GROUPS = st.lists(
    st.lists(st.lists(VALUES["float"], min_size=1, max_size=6), min_size=1, max_size=4), max_size=5
)


@given(groups=GROUPS, data=st.data())
def test_many_groups_that_are_merged_together_have_each_its_own_bins(
    groups: list[list[list[float]]], data: st.DataObject
) -> None:
    """Each group is given as the values of its parts; the parts of all come in any order."""
    spec = AggregateSpec("x", "quantile", "f", "f < 1000.0", {"q": 0.5})
    made, rows = made_of(spec, "float"), make_aggregator("quantile", {"q": 0.5}, None)
    parts = [(number, part) for number, mine in enumerate(groups) for part in mine]
    parts = data.draw(st.permutations(parts))
    if not parts:
        return
    values = pl.DataFrame(
        [
            pl.Series("f", [value for _, part in parts for value in part], pl.Float64),
            pl.Series("k", [number for number, part in parts for _ in part], pl.Int64),
            pl.Series(
                "part", [index for index, (_, part) in enumerate(parts) for _ in part], pl.Int64
            ),
        ]
    )
    staged = values.with_columns(made.staged()).with_columns(made.prepared())
    grouped = staged.group_by("k", "part", maintain_order=True).agg(made.grouped())
    merged = grouped.group_by("k", maintain_order=True).agg(made.merged()).sort("k")
    for number, row in zip(sorted(set(merged["k"].to_list())), merged.to_dicts(), strict=True):
        acc = rows.create()
        for value in [value for part in groups[number] for value in part if value < 1000.0]:
            acc = rows.add(acc, rows.check(value, "f"), 0)
        assert made.to_acc(row) == acc


@given(
    rows=st.lists(
        st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-6 or x == 0), min_size=1, max_size=60
    ),
    q=st.floats(0, 1),
)
def test_quantiles_are_within_one_percent(rows: list[float], q: float) -> None:
    made = make_aggregator("quantile", {"q": q})
    true = sorted(rows)[math.floor(q * (len(rows) - 1))]
    assert made.result(_over(made, [(value, 0) for value in rows])) == pytest.approx(
        true, rel=0.0101
    )
