"""Which steps and branches have a column form, for which types, and why others have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.plans import StatelessPlans, stateless_plan, why_no_plan
from millwheel.core.columns.stateless.stages import StatelessPlan
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.language import BUILT_IN, built_in, compile_expression
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, InputSpec, Productions
from millwheel.core.pipeline.steps import compile_steps
from millwheel.core.pipeline.work import BranchesSpec, BranchSpec, StepKind, StepSpec, StepsSpec
from millwheel.errors import RecordError

FIELDS = {"i": "int", "f": "float", "s": "str", "b": "bool"}
SQL = built_in(NullLogic.SQL)
INPUT = InputSpec("in", KeySpec(KeyKind.RECORD))


def _no_function(name: str) -> Any:
    raise AssertionError(f"{name} was loaded")


def spec(*steps: StepSpec, **options: Any) -> ComputationSpec:
    return ComputationSpec("c", (INPUT,), ("out",), StepsSpec(steps), **options)


def keep(text: str) -> StepSpec:
    return StepSpec(StepKind.FILTER, expression=text)


def make(fields: Mapping[str, str]) -> StepSpec:
    return StepSpec(StepKind.MAP, fields=fields)


def split(name: str, text: str) -> StepSpec:
    return StepSpec(StepKind.FLAT_MAP, fields={name: text})


def why(computation: ComputationSpec) -> str:
    return why_no_plan(computation, compile_expression, False)


STEPS = (
    keep("i != 0"),
    make(
        {
            "q": "100 / i",
            "twice": "i * 2",
            "f": "f",
            "b": "f > 1.0 and i > 2",
            "c": "-3",
            "s": "s",
            "p": "part(s, 'a', 1)",
        }
    ),
    keep("twice > -1000000 or b"),
    keep("p != null or twice > 2"),
    make(
        {
            "r": "q * 0.5 if b else f",
            "n": "twice % 7",
            "t": "concat(s, '!')",
            "f": "f",
            "p": "p if twice > 3 else 'none'",
            "m": "twice % 1000003 if twice > 5 else twice // 7 * 3",
            "x": "case(b, upper(s), lower(s))",
        }
    ),
)
ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
        "f": st.floats() | st.none() | st.sampled_from([0.0, -0.0, 1.5]),
        "s": st.text(max_size=2) | st.sampled_from(["ab", "a", "b"]) | st.none(),
    }
)


@given(st.lists(ROWS, max_size=8))
@settings(deadline=None)
def test_what_fits_becomes_what_it_becomes_in_rows(rows: list[dict[str, Any]]) -> None:
    plan = stateless_plan(spec(*STEPS), FIELDS, compile_expression)
    assert isinstance(plan, StatelessPlan)
    assert plan.fields == {"r": "float", "n": "int", "t": "str", "f": "float"} | {
        "p": "str",
        "m": "int",
        "x": "str",
    }
    frame = pl.DataFrame(rows, {"i": pl.Int64, "f": pl.Float64, "s": pl.String})
    index = np.arange(len(rows))
    keys = pl.Series("key", index, pl.Int64)
    passed = plan.passed(ColumnBatch("in", index, index, keys, frame))
    found = {
        key: row
        for part in passed.parts
        for key, row in zip(part.keys.to_list(), part.frame.to_dicts(), strict=True)
    }
    apply = compile_steps(STEPS, _no_function)
    for number, row in enumerate(rows):
        if number in passed.for_rows:
            continue
        results = list(apply(row))
        assert repr(results) == repr([found[number]] if number in found else []), row


def test_records_that_an_expression_fails_for_do_not_fit() -> None:
    plan = stateless_plan(spec(make({"q": "1 / i"})), FIELDS, compile_expression)
    assert isinstance(plan, StatelessPlan)
    frame = pl.DataFrame({"i": [1, 0, 2]})
    passed = plan.passed(
        ColumnBatch("in", np.arange(3), np.arange(3), frame["i"].alias("key"), frame)
    )
    assert passed.for_rows.tolist() == [1]
    with pytest.raises(RecordError):
        list(compile_steps([make({"q": "1 / i"})], _no_function)({"i": 0}))


@pytest.mark.parametrize(
    ("computation", "reason"),
    [
        (spec(keep("i > 1")), ""),
        (spec(keep("i > 1"), productions=Productions.WEAK), "weak productions"),
        (spec(keep("i > 1"), ordered=True), ""),
        (
            replace(spec(keep("i > 1"), ordered=True), inputs=(INPUT, replace(INPUT, stream="b"))),
            "records of several streams wait for their order",
        ),
        (
            spec(keep("i > 1"), ordered=True, delivery=Delivery.AT_LEAST_ONCE),
            "its records may come twice",
        ),
        (spec(StepSpec(StepKind.MAP, function="a:b")), "code of your own takes each record"),
        (spec(StepSpec(StepKind.MAP, expression="i")), "makes values without fields"),
        (spec(StepSpec(StepKind.FLAT_MAP, expression="(i, i)")), "makes values without fields"),
        (spec(split("w", "split(s, 'a')")), ""),
        (spec(split("w", "[i, i + 1]"), keep("w > 1")), ""),
        (spec(split("w", "split(s, s)")), "`split(s, s)` has no column form"),
        (spec(split("w", "[]")), "`[]` has no column form"),
        (spec(split("w", "tags")), "`tags` has no column form"),
        (spec(split("*", "[i]")), "a field that columns cannot have"),
        (spec(make({"__retraction__": "i"})), "a field that columns cannot have"),
        (spec(make({"*": "i"})), "a field that columns cannot have"),
        (spec(make({"x": "field('^a$')"})), "for a pattern"),
        (spec(make({"x": "i ** 2"})), "`i ** 2` has no column form"),
        (spec(keep("i + 1")), "`i + 1` has no column form"),
    ],
)
def test_why_steps_have_no_column_form_for_any_types(
    computation: ComputationSpec, reason: str
) -> None:
    assert reason in why(computation)
    assert bool(reason) == bool(why(computation))


def test_records_that_may_be_taken_back_and_ways_to_one_stream_go_by_rows() -> None:
    assert why_no_plan(spec(keep("i > 1")), compile_expression, True) == "records can be taken back"
    twice = BranchesSpec((BranchSpec("out", "i > 1"), BranchSpec("out")))
    computation = ComputationSpec("c", (INPUT,), ("out",), twice)
    assert why(computation) == "two branches lead to the same stream"


def test_types_decide_and_are_asked_once() -> None:
    plans = StatelessPlans(spec(keep("i > 1"), make({"x": "f + i", "s": "s"})), compile_expression)
    assert plans.projects
    assert plans.needs == {"i", "f", "s"}
    assert plans.plan(FIELDS) is plans.plan({**FIELDS, "other": ""}) is not None
    assert plans.plan_or_why({"i": "str", "f": "float", "s": "str"}) == "`i > 1` has no column form"
    missing = plans.plan_or_why({"i": "int", "s": "str"})
    assert missing == "`f + i` has no column form: the type of f is not known"


def test_filters_and_branches_pass_on_all_fields() -> None:
    plans = StatelessPlans(spec(keep("i > 1")), compile_expression)
    plan = plans.plan(FIELDS)
    assert not plans.projects
    assert plan is not None
    assert plan.fields == FIELDS
    branches = BranchesSpec((BranchSpec("a", "i > 1"), BranchSpec("b")), match_all=True)
    ways = StatelessPlans(ComputationSpec("c", (INPUT,), ("a", "b"), branches), compile_expression)
    split = ways.plan(FIELDS)
    assert not ways.projects
    assert ways.needs == {"i"}
    assert split is not None
    assert (split.rest, split.first_only, split.fields) == (("b",), False, FIELDS)


def test_a_field_that_decides_must_not_be_null_and_one_compared_with_null_may() -> None:
    frame = pl.DataFrame({"b": [True, None, False], "s": ["a", None, "c"]})
    keys = pl.Series("key", [1, 2, 3])
    batch = ColumnBatch("in", np.arange(3), np.arange(3), keys, frame)
    for text, for_rows, kept in (
        ("b", [1], [1]),
        ("s != null", [], [1, 3]),
        ("s is null", [], [2]),
        ("s == null or b", [1], [1]),
        ("s != None and s > 'b'", [1], [3]),
    ):
        plan = stateless_plan(spec(keep(text)), {"b": "bool", "s": "str"}, compile_expression)
        assert isinstance(plan, StatelessPlan), text
        passed = plan.passed(batch)
        assert passed.for_rows.tolist() == for_rows, text
        assert [key for part in passed.parts for key in part.keys.to_list()] == kept, text


OFFERS = st.none() | st.fixed_dictionaries(
    {
        "price": st.none() | st.integers(-5, 5),
        "by": st.none() | st.fixed_dictionaries({"name": st.none() | st.sampled_from(["a", "b"])}),
    }
)
OFFER = pl.Struct({"price": pl.Int64, "by": pl.Struct({"name": pl.String})})
WITHIN = (
    (keep("bid.price > 1"),),
    (keep("bid.by.name NULLS"),),
    (keep("bid NULLS and bid.price > n"), make({"p": "bid.price", "n": "n"})),
    (make({"p": "bid.price", "name": "bid.by.name", "n": "n + 1"}),),
    (make({"bid": "bid", "there": "bid NULLS", "by": "bid.by"}), keep("there or by NULLS")),
)


@pytest.mark.parametrize("steps", WITHIN)
@pytest.mark.parametrize("compiled", [compile_expression, SQL.compile], ids=["plain", "nulls: sql"])
@given(st.lists(st.fixed_dictionaries({"bid": OFFERS, "n": st.integers(-3, 3)}), max_size=8))
@settings(deadline=None, max_examples=40)
def test_fields_within_fields_become_what_they_become_in_rows(
    compiled: Any, steps: tuple[StepSpec, ...], rows: list[dict[str, Any]]
) -> None:
    nulls = "!= null" if compiled is compile_expression else "is not null"
    steps = tuple(
        replace(
            step,
            expression=step.expression.replace("NULLS", nulls),
            fields={name: text.replace("NULLS", nulls) for name, text in step.fields.items()},
        )
        for step in steps
    )
    frame = pl.DataFrame(rows, {"bid": OFFER, "n": pl.Int64})
    index = np.arange(len(rows))
    batch = ColumnBatch("in", index, index, pl.Series("key", index, pl.Int64), frame)
    plan = StatelessPlans(spec(*steps), compiled).of(batch)
    assert plan is not None
    passed = plan.passed(batch)
    found = {
        key: row
        for part in passed.parts
        for key, row in zip(part.keys.to_list(), part.frame.to_dicts(), strict=True)
    }
    language = BUILT_IN if compiled is compile_expression else SQL
    apply = compile_steps(steps, _no_function, language)
    for number, row in enumerate(rows):
        if number not in passed.for_rows:
            assert list(apply(row)) == ([found[number]] if number in found else []), row


def test_a_record_is_passed_on_and_compared_with_null_and_nothing_else() -> None:
    fields = {"bid": "record", "n": "int"}
    for text in ("bid == bid", "coalesce(bid, bid)", "bid if n > 1 else bid", "case(n > 1, bid)"):
        assert "has no column form" in str(
            stateless_plan(spec(make({"x": text})), fields, compile_expression)
        )
    assert isinstance(
        stateless_plan(spec(make({"x": "bid"})), fields, compile_expression), StatelessPlan
    )
