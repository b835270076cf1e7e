"""Declarations of functions: their arguments, which constants they may be; and calls of the user's
own."""

from __future__ import annotations

import pytest

from millwheel.core.expressions.declaration import Function, Nulls, OwnFunction, table
from millwheel.core.expressions.language import (
    BUILT_IN,
    Language,
    compile_expression,
    compile_foreign,
)
from millwheel.errors import RecordError


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
    with pytest.raises(ValueError, match="not a signature"):
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


def language(**functions: OwnFunction) -> Language:
    return Language(functions)


DOUBLE = language(double=OwnFunction("double", lambda value: value * 2, 1, 1))


def test_a_call_gets_the_values_of_its_arguments() -> None:
    expression = DOUBLE.compile("double(n + 1) + len(double(k))")
    assert expression.evaluate({"n": 2, "k": "ab"}) == 10
    assert expression.fields == ("n", "k")
    assert DOUBLE.compile("double(n)") is DOUBLE.compile("double(n)")


def test_nothing_is_called_before_there_is_a_record() -> None:
    calls: list[object] = []

    def told(*given: object) -> int:
        calls.append(given)
        return len(calls)

    counting = language(told=OwnFunction("told", told, 0, 1))
    expression = counting.compile("told(5) + abs(told())")
    assert not calls
    assert expression.evaluate({}) == 3
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("least", "most", "count", "complaint"),
    [
        (1, 1, 0, "f() takes 1 argument, not 0"),
        (2, 2, 1, "f() takes 2 arguments, not 1"),
        (1, 3, 4, "f() takes 1 to 3 arguments, not 4"),
        (1, 100, 0, "f() takes at least 1 argument, not 0"),
        (0, 100, 7, ""),
    ],
)
def test_the_number_of_arguments_is_checked(
    least: int, most: int, count: int, complaint: str
) -> None:
    assert OwnFunction("f", print, least, most).complaint(count) == complaint


def test_a_wrong_call_and_an_unknown_name_have_their_column() -> None:
    with pytest.raises(ValueError, match=r"column 5: double\(\) takes 1 argument, not 2"):
        DOUBLE.compile("1 + double(n, 2)")
    with pytest.raises(ValueError, match="unknown function 'duble'; did you mean 'double'"):
        DOUBLE.compile("duble(n)")


@pytest.mark.parametrize("compiled", [compile_expression, compile_foreign, BUILT_IN.compile])
def test_no_other_language_has_them(compiled: object) -> None:
    assert callable(compiled)
    with pytest.raises(ValueError, match="unknown function 'double'"):
        compiled("double(n)")


def test_what_a_function_refuses_is_an_error_of_the_record() -> None:
    def refusing(value: object) -> None:
        raise RecordError("no")

    with pytest.raises(RecordError, match="no"):
        language(f=OwnFunction("f", refusing)).compile("f(n)").evaluate({"n": 1})
