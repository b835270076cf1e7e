"""From specs to machines, with every impossible setting refused."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import machine_from_spec, window_from_spec, windowing_from_spec
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.core.windows.contract import Effects, LatePolicy, Machine, Times
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Global,
    Sessions,
    Sliding,
    Tumbling,
    Window,
)
from tests.computations import computation_spec

S = 1_000_000


@pytest.mark.parametrize(
    ("spec", "window"),
    [
        (WindowSpec("tumbling", {"size_us": 10 * S}), Tumbling("10s")),
        (
            WindowSpec("tumbling", {"size_us": 86_400 * S, "offset_us": 5, "time_zone": "UTC"}),
            Tumbling("1d", 5, "UTC"),
        ),
        (WindowSpec("tumbling", {"size_us": 10 * S, "time_zone": None}), Tumbling("10s")),
        (
            WindowSpec("sliding", {"size_us": 10 * S, "every_us": S, "changes": True}),
            Sliding("10s", "1s", changes=True),
        ),
        (WindowSpec("session", {"gap_us": S}), Sessions("1s")),
        (WindowSpec("global"), Global()),
        (WindowSpec("count", {"count": 3}), Count(3)),
        (WindowSpec("cumulative", {"size_us": 60 * S, "every_us": S}), Cumulative("1m", "1s")),
    ],
)
def test_a_spec_and_its_window(spec: WindowSpec, window: Any) -> None:
    assert window_from_spec(spec) == window


class Halves:
    """A window function of the user's own."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def assign(self, timestamp: int) -> list[tuple[int, int]]:
        start = timestamp - timestamp % self.size
        return [(start, start + self.size)]


def test_a_custom_window_comes_from_a_factory() -> None:
    window = window_from_spec(
        WindowSpec("custom", {"factory": "my:Halves", "size": 4}), lambda name: Halves
    )
    assert isinstance(window, Custom)
    assert window.assign(6) == [Window(4, 8)]
    made = window_from_spec(
        WindowSpec("custom", {"factory": "my:ten"}), lambda name: lambda: Tumbling(10)
    )
    assert made == Tumbling(10)


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        (
            WindowSpec("hopping"),
            "unknown kind of window 'hopping'; there are count, cumulative, custom",
        ),
        (
            WindowSpec("tumbling", {"size_us": 5, "gap_us": 3}),
            "tumbling windows have no setting 'gap_us'",
        ),
        (WindowSpec("global", {"size_us": 5}), "they have none"),
        (WindowSpec("sliding", {"size_us": 5, "every_us": 7}), "at most the size"),
        (WindowSpec("custom", {}), "need a factory"),
    ],
)
def test_a_window_that_cannot_be_is_refused(spec: WindowSpec, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        window_from_spec(spec, lambda name: dict)


def test_a_custom_window_without_assign_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must return an object with assign\(timestamp\)"):
        window_from_spec(WindowSpec("custom", {"factory": "my:dict"}), lambda name: dict)


def _computation(**settings: Any) -> ComputationSpec:
    defaults: dict[str, Any] = {
        "window": WindowSpec("tumbling", {"size_us": 10}),
        "name": "traffic",
        "inputs": (),
    }
    return computation_spec(**defaults | settings)


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"window": None}, "has no window"),
        (
            {"accumulation": "piling"},
            "accumulation must be one of discarding, accumulating, retracting",
        ),
        ({"output_time": "now"}, "output_time must be one of"),
        ({"trigger": {"after_lunch": 1}}, "unknown trigger"),
        ({"allowed_lateness_us": -1}, "cannot be negative"),
        ({"late": "refire", "accumulation": "accumulating"}, "set allowed_lateness"),
        (
            {"window": WindowSpec("count", {"count": 3}), "allowed_lateness_us": 5},
            "leave out trigger",
        ),
        ({"window": WindowSpec("count", {"count": 3}), "trigger": "never"}, "after_count"),
        ({"aggregates": (AggregateSpec("n", "medain"),)}, "unknown aggregate function 'medain'"),
        ({"aggregates": (AggregateSpec("n", "sum"),)}, "n: sum needs a field or expression"),
        ({"aggregates": (AggregateSpec("n", "sum", "a +"),)}, "not an expression"),
    ],
)
def test_a_computation_that_cannot_work_is_refused(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        machine_from_spec(_computation(**settings), compile_expression)


def test_late_records_refire_only_when_asked() -> None:
    assert windowing_from_spec(_computation(late="refire")).late is LatePolicy.REFIRE
    assert windowing_from_spec(_computation(late="side:late_hits")).late is LatePolicy.DROP


def _run(machine: Machine, records: list[tuple[Any, int]]) -> Effects:
    state: dict[Any, Any] = {}
    effects = Effects()
    machine.on_records(state, "k", records, Times(0, 0), effects)
    for timer in list(effects.timers):
        assert timer.at is not None
        machine.on_timer(state, "k", timer.tag, timer.domain, timer.at, Times(MAX_TIME, 0), effects)
    return effects


def test_a_record_outside_the_calendar_is_rejected() -> None:
    spec = _computation(
        window=WindowSpec("tumbling", {"size_us": 86_400 * S, "time_zone": "Europe/Berlin"})
    )
    [rejected] = _run(machine_from_spec(spec, compile_expression), [({}, 2**60)]).rejected
    assert "outside of years 1 to 9999" in rejected.reason
