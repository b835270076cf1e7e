"""The functions of expressions: their examples, their constants, and that columns say what rows
say, to the bit."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millwheel.core.expressions.columns import _translate
from millwheel.core.expressions.declaration import MOST_ARGUMENTS, Function, Nulls
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.language import compile_expression
from millwheel.core.expressions.nodes import RUNTIME_ERRORS
from millwheel.core.expressions.scope import Scope
from millwheel.core.expressions.terms import NoColumns
from millwheel.errors import RecordError

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers())
)


def call(function: Function, given: Any) -> Any:
    """The row form on values."""
    if function.lazy:
        given = [partial(lambda value: value, each) for each in given]
    return function.act(*given)


@given(st.sampled_from(sorted(FUNCTIONS)), st.data())
def test_whatever_a_function_is_given_it_answers_or_raises_what_becomes_a_record_error(
    name: str, data: Any
) -> None:
    function = FUNCTIONS[name]
    count = data.draw(st.integers(function.least, min(function.most, 3)))
    with contextlib.suppress(RUNTIME_ERRORS):
        call(function, [data.draw(VALUES) for _ in range(count)])


EXAMPLES = [each for function in FUNCTIONS.values() for each in function.examples]


@pytest.mark.parametrize(("text", "value"), EXAMPLES, ids=[text for text, _ in EXAMPLES])
def test_an_example_has_its_value(text: str, value: Any) -> None:
    found = compile_expression(text).evaluate({})
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_every_function_has_a_line_and_an_example_that_calls_it() -> None:
    for name, function in FUNCTIONS.items():
        assert function.name == name
        assert function.description
        assert all(text.startswith(f"{name}(") for text, _ in function.examples), name
        assert function.examples
        assert function.parameters
        assert set(function.checks) <= {each.name for each in function.parameters}, name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_null_is_refused_where_the_table_says_so(name: str) -> None:
    function = FUNCTIONS[name]
    given: list[Any] = [None, *[1] * (function.least - 1)]
    if function.nulls is Nulls.REFUSED:
        with pytest.raises((TypeError, ValueError)):
            call(function, given)
        rest = ", 1" * (function.least - 1)
        with pytest.raises(ValueError, match=rf"column {len(name) + 2}: {name}\(\) takes no null"):
            compile_expression(f"{name}(null{rest})")
    else:
        with contextlib.suppress(ValueError):  # cast has no type 1
            call(function, given)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lower(5) == a", r"column 7: lower\(\) takes text as text, not 5; its signature: lower"),
        ("a == 1 and lpad(b, '3')", r"column 20: lpad\(\) takes int as length, not '3'"),
        ("matches(a, '(')", r"column 12: .* not a regular expression"),
        ("mod(a, 0)", r"column 8: mod\(\) does not take 0 as right: a division by zero"),
        ("cast(a, 'integer')", r"column 9: .* a type is one of int, float, text, bool"),
        ("split(a, '')", r"column 10: split\(\) does not take '' as separator: it is empty"),
        ("round(a, 500)", "up to 400 digits"),
        (f"like(a, '{'x' * 201}')", "up to 200 characters"),
        ("uper(a)", "unknown function 'uper'; did you mean 'upper'"),
        ("regexp_extract(a, 'b', -1)", "from 0"),
        ("coalesce()", "takes at least 1 argument, not 0"),
    ],
)
def test_constants_that_cannot_be_are_refused_with_their_column(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        compile_expression(text)


KINDS = {"s": pl.String, "i": pl.Int64, "f": pl.Float64, "b": pl.Boolean}
NAMES = {"s": "str", "i": "int", "f": "float", "b": "bool"}
TEXTS = st.sampled_from(
    ["", "a", "A", "ab", "aaa", "b a ", "\x1c a\u3000", "É", "ß", "ΑΣ", "İ", "漢字", "a%_", "\n"]
) | st.text(max_size=4)
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "s": TEXTS,
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4),
    "f": st.floats(allow_nan=False)
    | st.sampled_from([0.0, -0.0, 0.5, -2.5, 1.0, 2.0**62, 1e300, float("inf"), -float("inf")]),
    "b": st.booleans(),
}
OF_TYPE = {
    "text": "s",
    "int": "i",
    "number": "if",
    "float": "f",
    "bool": "b",
    "any": "sifb",
    "time": "i",
    "list": "s",
}
IN_COLUMNS = sorted(name for name, function in FUNCTIONS.items() if function.columns)


UNITS = ["1h", "90s", "1d", "week", "month", "quarter", "year"]


def _constant(kind: str, parameter: str, data: Any) -> str:
    if parameter == "unit":
        return repr(data.draw(st.sampled_from([*UNITS, "s", "ms", "us"])))
    if parameter == "pattern":
        return repr(
            data.draw(st.sampled_from(["a", "^(A)?", "(a)(b)?", "\\w$", "a%", "%a%", "_b"]))
        )
    if parameter == "format":
        return repr(data.draw(st.sampled_from(["%Y-%m-%d", "%d/%m %H:%M", "day %j", "%S.%f %z"])))
    if kind == "s":
        words = TEXTS | st.sampled_from(["a%", "%a", "%a%", "%", "a%b", "_"])
        return repr(data.draw(words))
    value = data.draw(st.integers(-3, 12) if kind == "i" else DRAWN[kind])
    assume(value == value and abs(value) != float("inf"))
    return str(value).lower() if kind == "b" else repr(value)


def _drawn_call(name: str, data: Any) -> str:
    """A call with fields and constants of fitting types; most functions want equal kinds."""
    function = FUNCTIONS[name]
    count = data.draw(
        st.integers(function.least, 3 if function.most == MOST_ARGUMENTS else function.most)
    )
    wanted = [OF_TYPE[function.parameter(index).takes] for index in range(count)]
    same = data.draw(st.sampled_from("sifb"))
    parts: list[str] = []
    for index, kinds in enumerate(wanted):
        kind = same if same in kinds else data.draw(st.sampled_from(kinds))
        parts.append(
            f"{kind}{data.draw(st.integers(0, 1))}"
            if not parts or data.draw(st.booleans())
            else _constant(kind, function.parameter(index).name, data)
        )
    return f"{name}({', '.join(parts)})"


@given(st.sampled_from(IN_COLUMNS), st.data())
@settings(max_examples=600, deadline=None)
def test_columns_of_a_function_have_the_bits_of_its_rows(name: str, data: Any) -> None:
    text = _drawn_call(name, data)
    fields = {f"{kind}{index}": NAMES[kind] for kind in KINDS for index in (0, 1)}
    try:
        compiled = compile_expression(text)
        term = _translate(compiled.tree, Scope(fields))
    except (ValueError, NoColumns):
        assume(False)
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({each: DRAWN[each[0]] for each in fields}),
            min_size=1,
            max_size=4,
        )
    )
    frame = pl.DataFrame(rows, {each: KINDS[each[0]] for each in fields})
    exact = pl.all_horizontal(pl.lit(True), *term.exact)
    known, found = (
        frame.with_columns(each.alias("x"))["x"].to_list() for each in (exact, term.column)
    )
    for row, sure, value in zip(rows, known, found, strict=True):
        if sure:
            expected = compiled.evaluate(row)
            assert (type(value), repr(value)) == (type(expected), repr(expected)), (text, row)
            assert term.kind == type(value).__name__


@pytest.mark.parametrize("name", IN_COLUMNS)
def test_each_column_form_is_one(name: str) -> None:
    """For some kinds of its arguments."""
    texts = {
        "substr": "substr(s0, 1)",
        "replace": "replace(s0, 'a', 'b')",
        "like": "like(s0, 'a%')",
        "trunc": "trunc(i0, 'month')",
        "case": "case(i0 > 1, s0, 'x')",
        "part": "part(s0, '/', -1)",
        "time_of": "time_of(i0, 'ms')",
        "date_format": "date_format(i0, '%Y')",
        "matches": "matches(s0, 'a+')",
        "regexp_extract": "regexp_extract(s0, '(a+)|b')",
        "cast": "cast(i0, 'float')",
        "decimal_text": "decimal_text(i0, 2)",
        "decimal_units": "decimal_units(s0, 9, 2)",
        "duration": "i0 + duration('1h')",
    }
    kinds = (name_of for name_of in ("s0", "i0", "f0"))
    calls = [texts[name]] if name in texts else [
        f"{name}({', '.join([kind] * max(FUNCTIONS[name].least, count))})"
        for kind in kinds
        for count in (1, 2)
    ]  # fmt: skip
    fields = {"s0": "str", "i0": "int", "f0": "float"}
    forms = []
    for text in calls:
        with contextlib.suppress(ValueError, NoColumns, TypeError):
            forms.append(_translate(compile_expression(text).tree, Scope(fields)))
    assert forms


def test_what_is_not_needed_is_not_computed() -> None:
    lazy = compile_expression("coalesce(a, 1 / b) + case(b == 0, 1, 1 / b > 0, 2, 3)")
    assert lazy.evaluate({"a": 5, "b": 0}) == 6
    with pytest.raises(RecordError, match="division by zero"):
        lazy.evaluate({"a": None, "b": 0})
    assert compile_expression("case(a > 1, 'x', 'y')").evaluate({"a": 0}) == "y"


OPTIONAL = [
    (name, index)
    for name, function in FUNCTIONS.items()
    if function.nulls is Nulls.REFUSED
    for index, parameter in enumerate(function.parameters)
    if parameter.optional
]


@pytest.mark.parametrize(("name", "index"), OPTIONAL)
def test_a_null_never_means_that_an_argument_is_left_out(name: str, index: int) -> None:
    function = FUNCTIONS[name]
    fields = [f"f{number}" for number in range(index + 1)]
    expression = compile_expression(f"{name}({', '.join(fields)})")
    example = {"text": "1", "int": 1, "number": 1, "time": 0, "any": 1}
    value = {
        field: example[parameter.takes]
        for field, parameter in zip(fields, function.parameters, strict=False)
    }
    with pytest.raises(RecordError, match=f"takes no null as {function.parameters[index].name}"):
        expression.evaluate({**value, fields[index]: None})


def test_a_slice_has_no_null_as_an_end() -> None:
    with pytest.raises(RecordError, match="not null; leave it out"):
        compile_expression("text[low:3]").evaluate({"text": "abc", "low": None})
    assert compile_expression("text[:3]").evaluate({"text": "abcd"}) == "abc"


def test_trim_takes_few_letters() -> None:
    with pytest.raises(RecordError, match="up to 1,000 letters"):
        compile_expression("trim(a, b)").evaluate({"a": "x" * 9, "b": "x" * 1_001})
