"""What a function says of itself: its arguments, and which constants they may be."""

from __future__ import annotations

import pytest

from millwheel.core.expressions.declared import Function, Nulls, table


def _function(signature: str, nulls: Nulls = Nulls.REFUSED) -> Function:
    return Function(signature, len, "", (), nulls)


def test_how_many_arguments_in_words() -> None:
    words = [
        _function(f"f({each}) -> int").arity
        for each in ("a: any", "a: any, b: any", "a: any, b?: any", "a: any, b...: any")
    ]
    assert words == ["1 argument", "2 arguments", "1 to 2 arguments", "at least 1 argument"]


def test_a_signature_names_its_parts() -> None:
    function = _function("find(text: text, more...: int) -> bool")
    assert (function.name, function.gives) == ("find", "bool")
    assert [each.name for each in function.parameters] == ["text", "more"]
    assert function.parameter(7).name == "more"
    assert table(function) == {"find": function}
    with pytest.raises(ValueError, match="no signature"):
        _ = _function("find(text)").name


def _even(value: int) -> None:
    if value % 2:
        raise ValueError("it is odd")


def test_a_constant_fits_its_parameter_or_the_sentence_says_why_not() -> None:
    function = Function("f(text: text, n: int) -> int", len, "", (), checks={"n": _even})
    assert [function.complaint(*each) for each in ((0, "a"), (1, 2))] == ["", ""]
    assert function.complaint(0, 5) == "takes text as text, not 5"
    assert function.complaint(0, None) == "takes no null as text"
    assert function.complaint(1, 3) == "does not take 3 as n: it is odd"
    assert _function("f(text: text) -> int", Nulls.TAKEN).complaint(0, None) == ""
