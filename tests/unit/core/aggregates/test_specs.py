"""From the aggregates of a spec to an aggregation."""

from __future__ import annotations

from typing import Any

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import machine_from_spec
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.machines.test_specs import _computation, _run


class Longest(Aggregator[str]):
    """The longest text."""

    def create(self) -> str:
        return ""

    def add(self, acc: str, value: Any, timestamp: int) -> str:
        return max(acc, value, key=len)

    def merge(self, acc: str, other: str) -> str:
        return max(acc, other, key=len)


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
        "hits": 2, "clicks": 1, "named": 1, "bytes": 2000, "kilobytes": 2.0, "largest": 1500,
        "longest": "click",
    }  # fmt: skip
    [rejected] = effects.rejected
    assert (rejected.timestamp, rejected.reason) == (
        4,
        "sum of field 'size' needs a finite number, not str 'much'",
    )


def test_a_missing_field_is_named_with_those_that_are_there() -> None:
    machine = machine_from_spec(
        _computation(aggregates=(AggregateSpec("bytes", "sum", "size"),)), compile_expression
    )
    [rejected] = _run(machine, [({"kind": "view", "b": 1}, 1)]).rejected
    assert rejected.reason == "the record has no field 'size'; it has: b, kind"
