"""A plan from a spec, or the reason why the spec has none."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.columns.forms.windows import plan_or_why
from millwheel.core.columns.from_spec import fields_used
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import OfInput, Tumbling
from tests.unit.core.columns.state.test_windows import spec_of


def keyed_by(*fields: str) -> tuple[InputSpec, ...]:
    return (InputSpec("events", KeySpec(KeyKind.FIELDS, fields)),)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aggregates": (AggregateSpec("k", "collect", "cost"),)}, "the aggregate k has no column"),
        ({"aggregates": (AggregateSpec("s", "sum", "kind"),)}, "none for what it is given"),
        ({"aggregates": (AggregateSpec("s", "sum", "gone"),)}, "its field gone is not declared"),
        ({"condition": "gone > 1"}, "its condition has no column form"),
        ({"inputs": keyed_by("ad", "ad")}, "its key has the same field twice"),
        ({"inputs": keyed_by("ad", "cost")}, "the key cost is not declared as int or str"),
        ({"aggregates": (AggregateSpec("ad", "count"),)}, "has the name of a field of the key"),
    ],
)
def test_a_spec_without_a_plan_says_why(changes: dict[str, Any], why: str) -> None:
    spec, pipeline = spec_of(**changes)
    found = plan_or_why(spec, pipeline, windowing_from_spec(spec), compile_expression)
    assert isinstance(found, str)
    assert why in found


def test_the_fields_of_conditions_and_aggregates_are_used() -> None:
    aggregates = (AggregateSpec("s", "sum", "cost / size", condition="kind == 'click'"),)
    spec, _ = spec_of(aggregates=aggregates, condition="ad > 3")
    assert fields_used(spec, Tumbling(10), compile_expression) == {"ad", "cost", "kind", "size"}
    of_results = fields_used(spec, OfInput("opened", "ad"), compile_expression)
    assert of_results == {"ad", "cost", "kind", "size", "opened"}
