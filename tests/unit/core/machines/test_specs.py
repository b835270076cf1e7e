"""From specs to machines, with every impossible setting refused."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.expressions.language import compile_expression
from millwheel.core.key_windows.machine import KeyWindowMachine
from millwheel.core.machines.counted import CountMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.machines.fixed import AlignedMachine
from millwheel.core.machines.session_retractions import UnmergingMachine
from millwheel.core.machines.sessions import MergingMachine
from millwheel.core.machines.specs import machine_from_spec, window_from_spec, windowing_from_spec
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import AggregateSpec, ComputationSpec, WindowSpec
from millwheel.core.windowing.contract import Effects, LatePolicy, Machine, Times
from millwheel.core.windows.windows import Count, Cumulative, Custom, Global, Sessions, Sliding, Tumbling, Window

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
    window = window_from_spec(WindowSpec("custom", {"factory": "my:Halves", "size": 4}), lambda name: Halves)
    assert isinstance(window, Custom)
    assert window.assign(6) == [Window(4, 8)]
    made = window_from_spec(WindowSpec("custom", {"factory": "my:ten"}), lambda name: lambda: Tumbling(10))
    assert made == Tumbling(10)


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        (WindowSpec("hopping"), "unknown kind of window 'hopping'; there are count, cumulative, custom"),
        (WindowSpec("tumbling", {"size_us": 5, "gap_us": 3}), "tumbling windows have no setting 'gap_us'"),
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
    defaults: dict[str, Any] = {"window": WindowSpec("tumbling", {"size_us": 10}), "name": "traffic", "inputs": ()}
    return ComputationSpec(**defaults | settings)


@pytest.mark.parametrize(
    ("settings", "machine"),
    [
        ({}, AlignedMachine),
        ({"window": WindowSpec("sliding", {"size_us": 10, "every_us": 5})}, AlignedMachine),
        ({"window": WindowSpec("sliding", {"size_us": 10, "every_us": 5, "changes": True})}, KeyWindowMachine),
        ({"window": WindowSpec("session", {"gap_us": 10})}, MergingMachine),
        ({"window": WindowSpec("count", {"count": 10})}, CountMachine),
        ({"window": WindowSpec("cumulative", {"size_us": 10, "every_us": 5})}, CumulativeMachine),
        (
            {"window": WindowSpec("cumulative", {"size_us": 10, "every_us": 5}), "trigger": {"after_count": 2}},
            AlignedMachine,
        ),
    ],
)
def test_each_window_has_its_machine(settings: dict[str, Any], machine: type) -> None:
    assert type(machine_from_spec(_computation(**settings), compile_expression)) is machine


def test_sessions_over_retractions_can_fall_apart() -> None:
    spec = _computation(window=WindowSpec("session", {"gap_us": 10}), accumulation="retracting")
    assert type(machine_from_spec(spec, compile_expression, takes_retractions=True)) is UnmergingMachine


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"window": None}, "has no window"),
        ({"accumulation": "piling"}, "accumulation must be one of discarding, accumulating, retracting"),
        ({"output_time": "now"}, "output_time must be one of"),
        ({"trigger": {"after_lunch": 1}}, "unknown trigger"),
        ({"allowed_lateness_us": -1}, "cannot be negative"),
        ({"late": "refire", "accumulation": "accumulating"}, "set allowed_lateness"),
        ({"window": WindowSpec("count", {"count": 3}), "allowed_lateness_us": 5}, "leave out trigger"),
        ({"window": WindowSpec("count", {"count": 3}), "trigger": "never"}, "after_count"),
        ({"aggregates": (AggregateSpec("n", "medain"),)}, "unknown aggregate function 'medain'"),
        ({"aggregates": (AggregateSpec("n", "sum"),)}, "n: sum needs a field or expression"),
        ({"aggregates": (AggregateSpec("n", "sum", "a +"),)}, "no expression"),
    ],
)
def test_a_computation_that_cannot_work_is_refused(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        machine_from_spec(_computation(**settings), compile_expression)


def test_late_records_refire_only_when_asked() -> None:
    assert windowing_from_spec(_computation(late="refire")).late is LatePolicy.REFIRE
    assert windowing_from_spec(_computation(late="side:late_hits")).late is LatePolicy.DROP


class Longest(Aggregator[str]):
    """The longest text."""

    def create(self) -> str:
        return ""

    def add(self, acc: str, value: Any, timestamp: int) -> str:
        return max(acc, value, key=len)

    def merge(self, acc: str, other: str) -> str:
        return max(acc, other, key=len)


def _run(machine: Machine, records: list[tuple[Any, int]]) -> Effects:
    state: dict[Any, Any] = {}
    effects = Effects()
    machine.on_records(state, "k", records, Times(0, 0), effects)
    for timer in list(effects.timers):
        assert timer.at is not None
        machine.on_timer(state, "k", timer.tag, timer.domain, timer.at, Times(MAX_TIME, 0), effects)
    return effects


def test_aggregates_have_arguments_conditions_and_a_common_filter() -> None:
    spec = _computation(
        condition="kind != 'bot'",
        aggregates=(
            AggregateSpec("hits", "count"),
            AggregateSpec("clicks", "count", condition="kind == 'click'"),
            AggregateSpec("named", "count", "name"),
            AggregateSpec("bytes", "sum", "size"),
            AggregateSpec("kilobytes", "sum", "size / 1000"),
            AggregateSpec("largest", "max", "size"),
            AggregateSpec("longest", "my:Longest", "kind"),
        ),
    )
    machine = machine_from_spec(spec, compile_expression, lambda name: Longest)
    effects = _run(
        machine,
        [
            ({"kind": "view", "size": 500, "name": "a"}, 1),
            ({"kind": "click", "size": 1500}, 2),
            ({"kind": "bot", "size": "unread"}, 3),
            ({"kind": "view", "size": "much"}, 4),
        ],
    )
    [pane] = effects.panes
    assert pane.result == {
        "hits": 2, "clicks": 1, "named": 1, "bytes": 2000, "kilobytes": 2.0, "largest": 1500, "longest": "click",
    }  # fmt: skip
    [rejected] = effects.rejected
    assert (rejected.timestamp, rejected.reason) == (4, "sum of field 'size' needs a finite number, not str 'much'")


def test_a_missing_field_is_named_with_those_that_are_there() -> None:
    machine = machine_from_spec(_computation(aggregates=(AggregateSpec("bytes", "sum", "size"),)), compile_expression)
    [rejected] = _run(machine, [({"kind": "view", "b": 1}, 1)]).rejected
    assert rejected.reason == "the record has no field 'size'; it has: b, kind"


def test_without_aggregates_a_pane_holds_its_records() -> None:
    machine = machine_from_spec(_computation(condition="n > 0"), compile_expression)
    [pane] = _run(machine, [({"n": 1}, 4), ({"n": 0}, 5), ({"n": 2}, 3)]).panes
    assert pane.result == [[{"n": 1}, 4], [{"n": 2}, 3]]


def test_a_record_outside_the_calendar_is_rejected() -> None:
    spec = _computation(window=WindowSpec("tumbling", {"size_us": 86_400 * S, "time_zone": "Europe/Berlin"}))
    [rejected] = _run(machine_from_spec(spec, compile_expression), [({}, 2**60)]).rejected
    assert "outside of years 1 to 9999" in rejected.reason
