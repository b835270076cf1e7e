"""Reading a field of a record's value."""

from __future__ import annotations

import msgspec
import pytest

from millwheel.core.expressions.language import compile_expression
from millwheel.errors import RecordError
from tests.unit.core.expressions.test_language import RECORD


class Event(msgspec.Struct):
    type: str
    cost: float
    status: int = 404


@pytest.mark.parametrize(
    "text", ["type", "type == 'click'", "cost > 1", "cost * 2 > 1 and has(status)"]
)
def test_objects_with_attributes_work_like_dicts(text: str) -> None:
    event = Event("click", 2.5)
    assert compile_expression(text).evaluate(event) == compile_expression(text).evaluate(
        msgspec.to_builtins(event)
    )


def test_a_field_of_null_is_an_error_with_two_cures() -> None:
    alone = {"people": None}
    with pytest.raises(RecordError, match=r"null has no field 'region'.*is not null.*nulls: sql"):
        compile_expression("coalesce(people.region, 'unknown')").evaluate(alone)
    cure = compile_expression("people.region if people is not null else 'unknown'")
    assert cure.evaluate(alone) == "unknown"


@pytest.mark.parametrize(
    "text",
    ["mising", "mising == 1", "mising > 1", "mising + 1", "cost > 1 and mising", "user.mising"],
)
def test_a_missing_field_is_named_in_a_record_error(text: str) -> None:
    with pytest.raises(RecordError, match="no field 'mising'; it has"):
        compile_expression(text).evaluate(RECORD)
    if "user" not in text:
        with pytest.raises(RecordError, match="no field 'mising'; it has"):
            compile_expression(text).evaluate(Event("click", 2.5))
