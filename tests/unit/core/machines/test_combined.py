from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.combined import combined_window, why_not_combined
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.pipeline.spec import (
    AggregationStage,
    ComputationSpec,
    InputSpec,
    KeyKind,
    KeySpec,
    Productions,
)
from millwheel.core.pipeline.work import FOREVER, AggregateSpec, WindowSpec
from millwheel.core.windows.windows import Cumulative, Sessions, Sliding, Tumbling
from tests.computations import changed, computation_spec

GIVEN = InputSpec("s", KeySpec(KeyKind.FIELD, ("k",)))
SPEC = computation_spec(
    "c",
    (GIVEN,),
    ("o",),
    window=WindowSpec("tumbling", {"size_us": 10}),
    aggregates=(AggregateSpec("n", "count"),),
)


def why(spec: ComputationSpec, retractions: bool = False) -> str:
    windowing = windowing_from_spec(spec, None, retractions)
    return why_not_combined(
        spec, windowing, compile_aggregation(spec.aggregates, compile_expression)
    )


def test_a_plain_aggregation_takes_groups() -> None:
    assert why(SPEC) == ""
    assert why(changed(SPEC, window=WindowSpec("sliding", {"size_us": 10, "every_us": 5}))) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stage": AggregationStage.FINAL}, "divided"),
        ({"scatter": 2}, "divided"),
        ({"inputs": (GIVEN, GIVEN)}, "several inputs"),
        ({"window": WindowSpec(FOREVER)}, "it has no window"),
        ({"window": WindowSpec("session", {"gap_us": 10})}, "neither plain tumbling"),
        (
            {"window": WindowSpec("sliding", {"size_us": 10, "every_us": 3})},
            "neither plain tumbling",
        ),
        ({"trigger": {"repeat": {"after_count": 2}}}, "more than once"),
        ({"accumulation": "retracting"}, "more than once"),
        ({"allowed_lateness_us": 5}, "late records"),
        ({"late": "side:x"}, "late records"),
        ({"output_time": "latest"}, "looks at each record"),
        ({"productions": Productions.WEAK}, "weak"),
        ({"aggregates": (AggregateSpec("n", "first", "x"),)}, "order of records"),
    ],
)
def test_what_is_asked_of_single_records_says_why(change: dict[str, Any], reason: str) -> None:
    assert reason in why(changed(SPEC, **change))


def test_input_with_retractions_is_not_grouped() -> None:
    assert "taken back" in why(SPEC, retractions=True)


def test_groups_are_of_windows_or_of_the_steps_of_sliding_ones() -> None:
    assert combined_window(Tumbling(10, 3)) == Tumbling(10, 3)
    assert combined_window(Sliding(30, 10, 25)) == Tumbling(10, 5)
    others = [
        Sliding(30, 7),
        Sliding(30, 10, changes=True),
        Tumbling(10, empty=True),
        Sessions(5),
        Cumulative(30, 10),
    ]
    assert [combined_window(each) for each in others] == [None] * 5
