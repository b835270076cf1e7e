"""Each kind of windows has its machine, and what cannot work is refused."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.aligned_windows import AlignedMachine, SilencesMachine
from millwheel.core.machines.choice import combined_window, why_not_combined
from millwheel.core.machines.counts import CountMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.machines.key_windows import KeyWindowMachine
from millwheel.core.machines.session_retractions import UnmergingMachine
from millwheel.core.machines.sessions import MergingMachine
from millwheel.core.machines.specs import machine_from_spec, windowing_from_spec
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, InputSpec, Productions
from millwheel.core.pipeline.work import FOREVER, AggregateSpec, WindowSpec
from millwheel.core.windows.triggers import AfterCount
from millwheel.core.windows.windows import Cumulative, Sessions, Sliding, Tumbling
from millwheel.testing import WindowHarness
from tests.computations import changed, computation_spec
from tests.unit.core.machines.test_specs import _computation


@pytest.mark.parametrize(
    ("settings", "machine"),
    [
        ({}, AlignedMachine),
        ({"window": WindowSpec("sliding", {"size_us": 10, "every_us": 5})}, AlignedMachine),
        (
            {"window": WindowSpec("sliding", {"size_us": 10, "every_us": 5, "changes": True})},
            KeyWindowMachine,
        ),
        ({"window": WindowSpec("tumbling", {"size_us": 10, "empty": True})}, SilencesMachine),
        ({"window": WindowSpec("session", {"gap_us": 10})}, MergingMachine),
        ({"window": WindowSpec("count", {"count": 10})}, CountMachine),
        ({"window": WindowSpec("cumulative", {"size_us": 10, "every_us": 5})}, CumulativeMachine),
        (
            {
                "window": WindowSpec("cumulative", {"size_us": 10, "every_us": 5}),
                "trigger": {"after_count": 2},
            },
            AlignedMachine,
        ),
    ],
)
def test_each_window_has_its_machine(settings: dict[str, Any], machine: type) -> None:
    assert type(machine_from_spec(_computation(**settings), compile_expression)) is machine


def test_sessions_over_retractions_can_fall_apart() -> None:
    spec = _computation(window=WindowSpec("session", {"gap_us": 10}), accumulation="retracting")
    assert (
        type(machine_from_spec(spec, compile_expression, takes_retractions=True))
        is UnmergingMachine
    )


@pytest.mark.parametrize("function", ["max", "count_distinct", "collect"])
def test_discarding_panes_that_do_not_add_up_are_refused_for_retracted_input(function: str) -> None:
    with pytest.raises(ValueError, match="accumulation: retracting"):
        WindowHarness(Tumbling(10), AfterCount(1), aggregate=function, takes_retractions=True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"trigger": AfterCount(1)}, "leave out trigger and output_time"),
        ({"output_time": "earliest"}, "leave out trigger and output_time"),
        ({"accumulation": "accumulating", "allowed_lateness": 5}, "leave out allowed_lateness"),
        ({"late": "refire"}, "leave out allowed_lateness and late: refire"),
        ({"accumulation": "retracting"}, "leave out accumulation"),
        ({"takes_retractions": True}, "read a stream without them"),
    ],
)
def test_what_cannot_tell_silence_is_refused_with_the_reason(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        WindowHarness(Tumbling(10, empty=True), aggregate="count", **settings)


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
