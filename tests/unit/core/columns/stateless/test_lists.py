"""A record for each entry of a list, in columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.plans import StatelessPlans, stateless_plan
from millwheel.core.columns.stateless.stages import StatelessPlan
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.language import BUILT_IN, built_in, compile_expression
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.core.pipeline.steps import compile_steps
from millwheel.core.pipeline.work import StepKind, StepSpec, StepsSpec

FIELDS = {"i": "int", "f": "float", "s": "str", "b": "bool"}
SQL = built_in(NullLogic.SQL)
ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.none(),
        "f": st.none(),
        "s": st.text(max_size=2) | st.sampled_from(["ab", "a", "bab"]) | st.none(),
    }
)


def spec(*steps: StepSpec) -> ComputationSpec:
    inputs = (InputSpec("in", KeySpec(KeyKind.RECORD)),)
    return ComputationSpec("c", inputs, ("out",), StepsSpec(steps))


def keep(text: str) -> StepSpec:
    return StepSpec(StepKind.FILTER, expression=text)


def make(fields: dict[str, str]) -> StepSpec:
    return StepSpec(StepKind.MAP, fields=fields)


def split(name: str, text: str) -> StepSpec:
    return StepSpec(StepKind.FLAT_MAP, fields={name: text})


def no_function(name: str) -> Any:
    raise AssertionError(f"{name} was loaded")


LISTS = (
    (split("w", "split(s, 'a')"),),
    (keep("i != 1"), split("i", "[i, i * 2, 7]"), keep("i != 4")),
    (split("w", "(s, 'x')"), split("v", "[i, i + 1]"), make({"w": "w", "v": "v * 3", "s": "s"})),
    (split("s", "split(upper(s), 'A')"), keep("s != ''"), make({"q": "6 / i", "s": "s"})),
)


@pytest.mark.parametrize("steps", LISTS)
@pytest.mark.parametrize("language", [BUILT_IN, SQL], ids=["plain", "nulls: sql"])
@given(st.lists(ROWS, max_size=8))
@settings(deadline=None, max_examples=40)
def test_each_entry_of_a_list_becomes_what_it_becomes_in_rows(
    language: Any, steps: tuple[StepSpec, ...], rows: list[dict[str, Any]]
) -> None:
    frame = pl.DataFrame(rows, {"i": pl.Int64, "f": pl.Float64, "s": pl.String})
    index = np.arange(len(rows))
    batch = ColumnBatch("in", index, index, pl.Series("key", index, pl.Int64), frame)
    plan = stateless_plan(spec(*steps), FIELDS, language.compile)
    assert isinstance(plan, StatelessPlan)
    passed, apply = plan.passed(batch), compile_steps(steps, no_function, language)
    found: dict[int, list[Any]] = {number: [] for number in range(len(rows))}
    for part in passed.parts:
        assert part.timestamps.tolist() == part.keys.to_list()
        for key, row in zip(part.keys.to_list(), part.frame.to_dicts(), strict=True):
            found[key].append(row)
    for number, row in enumerate(frame.to_dicts()):
        fits = number not in passed.for_rows
        assert repr(found[number]) == repr(list(apply(row)) if fits else []), row


def test_the_new_field_is_not_read_of_the_input() -> None:
    steps = split("w", "split(s, 'a')"), keep("w != '' and i > 1")
    plans = StatelessPlans(spec(*steps), compile_expression)
    assert (plans.needs, plans.projects) == ({"s", "i"}, False)
    plans = StatelessPlans(spec(*steps, make({"w": "w", "f": "f"})), compile_expression)
    assert (plans.needs, plans.projects) == ({"s", "i", "f"}, True)
    plan = plans.plan(FIELDS)
    assert plan is not None
    assert plan.fields == {"w": "str", "f": "float"}


@pytest.mark.parametrize(
    "text", ["[]", "[i, f]", "[i, s]", "[null]", "split(s, s)", "split('a', 'a')"]
)
def test_lists_without_a_column_form(text: str) -> None:
    plan = stateless_plan(spec(split("w", text)), FIELDS, compile_expression)
    assert plan == f"`{text}` has no column form"


def test_a_field_of_which_inner_ones_are_read_is_not_replaced() -> None:
    fields = {"bid": "record", "\0.bid.price": "int"}
    plan = stateless_plan(spec(split("bid", "[bid.price]")), fields, compile_expression)
    assert plan == "`[bid.price]` replaces bid, of which fields are read"
    assert isinstance(
        stateless_plan(spec(split("p", "[bid.price]")), fields, compile_expression), StatelessPlan
    )
