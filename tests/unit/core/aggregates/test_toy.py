"""CONTRIBUTING.md, "Add an aggregate": one file, and one line that registers it. Everything else
follows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel import agg
from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.columns.forms.computations import computation_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.language.schema.parts import pipeline_schema
from tests.aggregate_table import table
from tests.search.generate import case
from tests.search.script import load
from tests.search.variants import chosen, examine
from tests.unit.core.aggregates import toy
from tests.unit.core.aggregates.both_forms import VALUES, same_in_both_forms

PIPELINE = """
pipeline: p
streams:
  hits: {source: {files: {path: "hits/*.jsonl", format: jsonl}}, timestamp: ts, fields: {n: int,
    k: str}}
computations:
  c:
    input: {hits: {key: k}}
    window: {tumbling: 1m}
    aggregate: {apart: {spread: n}}
    output: out
"""


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """As the line in functions.py would."""
    with pytest.MonkeyPatch.context() as patch:
        for name, function in toy.FUNCTIONS.items():
            patch.setitem(FUNCTIONS, name, function)  # type: ignore[misc]
        yield


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_pipeline_names_it_and_its_windows_stay_in_columns() -> None:
    spec = load(PIPELINE)
    [computation] = spec.computations
    assert computation.aggregates == (AggregateSpec("apart", "spread", "n"),)
    assert isinstance(computation_form(computation, spec, str, compile_expression).plan, ColumnPlan)


def test_python_names_it() -> None:
    assert agg.spread("n", where="n > 1") == agg.Aggregate("spread", "n", "n > 1")
    with pytest.raises(AttributeError, match="agg has no function 'spraed'; did you mean 'spread'"):
        agg.spraed


def test_editors_and_the_page_know_it() -> None:
    assert "spread" in str(pipeline_schema())
    assert "| `spread` | the largest less the smallest whole number | two numbers |" in table()


@given(st.lists(VALUES["int"], min_size=1, max_size=8), st.integers(0, 8))
def test_both_forms_are_one(values: list[int], cut: int) -> None:
    same_in_both_forms(AggregateSpec("apart", "spread", "f"), "int", values, cut)


@pytest.mark.parametrize("features", [["spread"], ["spread_in_columns"]])
def test_the_search_draws_it(features: list[str]) -> None:
    assert not examine(case(1, features), chosen(1, 3))


def test_the_search_finds_a_column_form_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        toy.Ends, "merged", lambda self: [pl.col(self.low).min(), pl.col(self.high).min()]
    )
    assert any(examine(case(seed, ["spread_in_columns"]), chosen(seed, 3)) for seed in (18, 2, 4))
