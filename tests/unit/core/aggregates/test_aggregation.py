"""The aggregation of a window: several aggregates, one, or none."""

from __future__ import annotations

from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import machine_from_spec
from tests.unit.core.machines.test_specs import _computation, _run


def test_without_aggregates_a_pane_holds_its_records() -> None:
    machine = machine_from_spec(_computation(condition="n > 0"), compile_expression)
    [pane] = _run(machine, [({"n": 1}, 4), ({"n": 0}, 5), ({"n": 2}, 3)]).panes
    assert pane.result == [[{"n": 1}, 4], [{"n": 2}, 3]]
