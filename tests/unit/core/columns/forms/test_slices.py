"""Records in columns are grouped by the slices that they lie in one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.forms.slices import SlicePlan, slice_plan, slice_plan_or_why
from millwheel.core.expressions.language import compile_expression
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import SlicesSpec, StepKind, StepSpec, StepsSpec
from millwheel.core.slices.levels import slice_levels
from tests.computations import changed
from tests.unit.core.columns.state.test_windows import spec_of

DAY = 86_400_000_000


def plan_of(slices: SlicesSpec) -> SlicePlan | None:
    spec, pipeline = spec_of()
    spec = changed(spec, window=None, slices=slices)
    return slice_plan(spec, replace(pipeline, computations=(spec,)), compile_expression)


@pytest.mark.parametrize("zone", ["", "Europe/Paris", "Asia/Kathmandu"])
@given(
    times=st.lists(
        st.one_of(st.integers(-3 * DAY, 400 * DAY), st.sampled_from([MIN_TIME, MAX_TIME])),
        min_size=1,
        max_size=20,
    )
)
def test_each_record_lies_in_the_slice_of_its_time(zone: str, times: list[int]) -> None:
    if zone:
        times = [min(max(each, -3 * DAY), 400 * DAY) for each in times]
    levels = slice_levels((DAY // 96, DAY // 24, DAY), zone)
    plan = plan_of(SlicesSpec(tuple(level.size_us for level in levels), 30 * DAY, zone))
    assert plan is not None
    for level in levels:
        found = plan.of_level(level)._assign(
            pl.Series(times), np.array(times, np.int64), pl.DataFrame()
        )
        assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == [
            level.bounds(at) for at in times
        ]


def test_what_looks_at_single_records_has_no_plan_and_says_why() -> None:
    spec, pipeline = spec_of()
    spec = changed(spec, window=None, slices=SlicesSpec((5, 10), 20))
    assert plan_of(SlicesSpec((5, 10), 20)) is not None
    assert plan_of(SlicesSpec((5, 10), 20, ttl_us=10)) is None
    undeclared = replace(
        pipeline, streams=(replace(pipeline.streams[0], fields={}),), computations=(spec,)
    )
    assert slice_plan(spec, undeclared, compile_expression) is None
    assert (
        slice_plan_or_why(spec, undeclared, compile_expression)
        == "the stream events declares no fields"
    )


def test_slices_behind_steps_have_the_types_of_their_expressions() -> None:
    spec, pipeline = spec_of()
    [given_input] = spec.inputs
    fields = {name: name for name in pipeline.stream(given_input.stream).fields}
    steps = StepsSpec((StepSpec(StepKind.MAP, fields=fields),))
    made = ComputationSpec("made", (given_input,), ("made",), steps)
    behind = replace(given_input, stream="made")
    spec = changed(replace(spec, inputs=(behind,)), window=None, slices=SlicesSpec((5, 10), 20))
    pipeline = replace(pipeline, computations=(made, spec))
    plan = slice_plan(spec, pipeline, compile_expression)
    before = plan_of(SlicesSpec((5, 10), 20))
    assert plan is not None
    assert before is not None
    assert (plan.kinds, plan.key_names) == (before.kinds, before.key_names)
