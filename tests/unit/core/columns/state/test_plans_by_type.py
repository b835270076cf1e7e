"""Plans for types that nobody has declared, and groups that tell the types of their records."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch, decode_columns, encode_columns
from millwheel.core.columns.forms.windows import plans_by_type
from millwheel.core.columns.state.plans_by_type import PlansByType, types_in, with_types
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.columns.state.test_windows import Row, batch_of, spec_of


def test_undeclared_fields_have_a_plan_for_each_of_their_types() -> None:
    spec, _ = spec_of(aggregates=(AggregateSpec("most", "max", "cost"),))
    plans = plans_by_type(spec, windowing_from_spec(spec), compile_expression)
    assert isinstance(plans, PlansByType)
    assert plans.needs == {"ad", "cost"}
    whole, text = (
        plans.plan({"ad": "int", "cost": "int"}),
        plans.plan({"ad": "str", "cost": "float"}),
    )
    assert whole is not None
    assert text is not None
    assert plans.held
    assert (whole.fires_once, text.fires_once) == (True, True)
    assert whole.inferred == (("ad", "int"), ("cost", "int"))
    assert whole.combines
    assert (whole.key_dtype, text.key_dtype) == (pl.Int64, pl.String)
    assert plans.plan({"ad": "float", "cost": "int"}) is None
    assert plans.of(batch_of([Row(1, "click", 0.5, 1, 5)])) is plans.plan(
        {"ad": "int", "cost": "float"}
    )


def test_who_passes_late_records_on_needs_all_fields_and_takes_rows() -> None:
    spec, _ = spec_of(late="side:behind")
    plans = plans_by_type(spec, windowing_from_spec(spec), compile_expression)
    assert plans == "late records are passed on with all of their fields, which are not declared"


NAMED = st.tuples(st.text(max_size=4), st.sampled_from(["int", "float", "str", "bool"]))


@given(st.lists(NAMED, unique_by=lambda pair: pair[0]).map(tuple))
def test_groups_tell_their_types_wherever_they_go(types: tuple[tuple[str, str], ...]) -> None:
    groups = pl.DataFrame({"start": [0, 0, 10], "end": [10, 10, 20], "a0": [1, 2, 3]})
    told = with_types(groups, types)
    assert told.select(groups.columns).equals(groups)
    assert told.width == groups.width + bool(types)
    keys = pl.Series("key", [1, 2, 1])
    sent = ColumnBatch("groups", np.array([], np.int64), groups["end"].to_numpy(), keys, told)
    for _, part in sent.split(np.array([0, 1, 0], np.int32)):
        for packed in (True, False):
            assert types_in(decode_columns(encode_columns(part, packed)).frame) == types
