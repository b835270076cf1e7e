"""Functions of the user's that take and give arrays: the same for each record, whether it is alone
or in a bundle."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.own_functions import own_function
from millwheel.core.expressions.columns import value_over_columns
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.inner_fields import inner_name
from millwheel.core.expressions.language import Language
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.lazy_polars import dtype
from millwheel.errors import CorruptionError, RecordError

FIELDS = {"i": "int", "f": "float", "s": "str"}


def half(numbers: pa.Array) -> pa.Array:
    if pc.any(pc.equal(numbers, 7)).as_py():
        raise ValueError("seven")
    return pc.divide(pc.cast(numbers, pa.float64()), 2)


def joined(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(texts, pc.cast(numbers, pa.string()), "-")


def odd(numbers: pa.Array) -> np.ndarray:
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64) % 2 == 1


def inverse(numbers: pa.Array) -> pa.Array:
    """Infinite of zero, whose sign it keeps."""
    return pc.divide(1.0, pc.cast(numbers, pa.float64()))


def unless_one(numbers: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(numbers, 1), pa.scalar(None, pa.int64()), numbers)


def language(nulls: NullLogic = NullLogic.ERROR) -> Language:
    functions = {
        "half": (half, "float"),
        "joined": (joined, "str"),
        "odd": (odd, "bool"),
        "inverse": (inverse, "float"),
        "unless_one": (unless_one, "int"),
    }
    return Language({n: own_function(n, f, kind) for n, (f, kind) in functions.items()}, nulls)


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.integers(-3, 9),
            "f": st.sampled_from([0.0, -0.0, 0.5, -2.0, 1e300]),
            "s": st.sampled_from(["", "a", "é"]),
        }
    ),
    min_size=1,
    max_size=40,
)
TEXTS = st.sampled_from(
    [
        "half(i)",
        "half(i) + half(i + 1)",
        "joined(s, i)",
        "len(joined(s, 5))",
        "odd(i)",
        "half(half(i) * 2.0)",
        "inverse(f)",
        "half(1 / i)",
        "case(i > 6, 0.5, half(i))",
        "unless_one(i)",
        "coalesce(unless_one(i), -5)",
        "i // 2 if odd(i) else unless_one(i)",
    ]
)


def of_columns(text: str, own: Language, records: list[dict[str, Any]]) -> list[Any]:
    """The value of each record in columns; Ellipsis where they do not know it."""
    expression = own.compile(text)
    frame = pl.DataFrame(records, {name: dtype(kind) for name, kind in FIELDS.items()})
    term = value_over_columns(expression.tree, FIELDS, expression.dialect)
    frame = frame.with_row_index("row")
    for check in term.exact:
        frame = frame.filter(check)
    found = dict(frame.select("row", term.column.alias("value")).rows())
    return [found.get(at, ...) for at in range(len(records))]


@settings(max_examples=200)
@given(TEXTS, RECORDS, st.sampled_from([*NullLogic]))
def test_columns_have_the_values_of_rows(
    text: str, records: list[dict[str, Any]], nulls: NullLogic
) -> None:
    own = language(nulls)
    evaluate = own.compile(text).evaluate
    for record, found in zip(records, of_columns(text, own, records), strict=True):
        if found is not ...:
            assert repr(evaluate(record)) == repr(found)


def test_only_what_fails_is_not_known() -> None:
    own = language()
    records = [{"i": 7 if at == 100 else 8, "f": 0.5, "s": ""} for at in range(1_000)]
    found = of_columns("half(i)", own, records)
    assert 1 <= found.count(...) <= 16
    assert found[100] is ...
    assert own.compile("half(i)").evaluate(records[0]) == 4.0
    with pytest.raises(RecordError, match=r"half\(\) failed: ValueError: seven"):
        own.compile("half(i)").evaluate(records[100])


def test_it_is_not_asked_for_null() -> None:
    seen: list[pa.Array] = []

    def noted(numbers: pa.Array) -> pa.Array:
        seen.append(numbers)
        return pc.add(numbers, 1)

    own = Language({"noted": own_function("noted", noted, "int")}, NullLogic.SQL)
    records = [{"i": 1, "f": 0.5, "s": ""}, {"i": None, "f": 0.5, "s": ""}]
    assert of_columns("noted(i)", own, records) == [2, None]
    assert {each.null_count for each in seen} == {0}
    assert own.compile("noted(i)").evaluate(records[1]) is None


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda a: a.slice(0, 0), r"f\(\) gave 0 values for 1 records; give one for each"),
        (lambda a: a.to_pylist(), r"f\(\) gave a list; return an array of Arrow or numpy"),
        (lambda a: a[0], r"f\(\) gave a Int64Scalar"),
        (lambda a: pc.cast(a, pa.string()), r"f\(\) gave string, not int, which `returns` says"),
        (lambda a: pc.cast(a, pa.float64()), r"f\(\) gave double, not int"),
        (lambda a: pa.array([2**64 - 1], pa.uint64()), r"f\(\) failed: ArrowInvalid"),
        (lambda a: 1 // 0, r"f\(\) failed: ZeroDivisionError"),
    ],
)
def test_a_result_that_does_not_fit_is_an_error_of_the_record(function: Any, why: str) -> None:
    own = Language({"f": own_function("f", function, "int")})
    record = {"i": 5, "f": 0.5, "s": ""}
    assert of_columns("f(i)", own, [record] * 40) == [...] * 40
    with pytest.raises(RecordError, match=why):
        own.compile("f(i)").evaluate(record)


def test_bytes_that_are_no_text_are_an_error_of_their_record() -> None:
    own = Language({"f": own_function("f", lambda a: pc.binary_replace_slice(a, 0, 1, "x"), "str")})
    records = [{"i": 5, "f": 0.5, "s": "é" if at == 100 else "ab"} for at in range(1_000)]
    found = of_columns("f(s)", own, records)
    assert found[0] == "xb"
    assert 1 <= found.count(...) <= 16
    assert found[100] is ...
    with pytest.raises(RecordError, match=r"f\(\) failed: ArrowInvalid: Invalid UTF8"):
        own.compile("f(s)").evaluate(records[100])


def test_it_takes_fields_within_fields() -> None:
    price = inner_name("bid", "price")
    compiled = language().compile("half(bid.price)")
    term = value_over_columns(compiled.tree, {price: "int"}, compiled.dialect)
    frame = pl.DataFrame({price: [8, 10]})
    assert frame.select(term.column.alias("half"))["half"].to_list() == [4.0, 5.0]


def test_what_it_may_give() -> None:
    given_type = pa.chunked_array([pa.array([3], pa.int8()), pa.array([], pa.int8())])
    for made in (given_type, np.array([3], np.int32), pa.nulls(1)):
        own = Language({"f": own_function("f", lambda _, made=made: made, "int")})
        assert own.compile("f(i)").evaluate({"i": 1}) in (3, None)


def test_a_function_that_looks_at_its_neighbours_is_found_out() -> None:
    def running(numbers: pa.Array) -> pa.Array:
        return pc.cumulative_sum(numbers)

    own = Language({"running": own_function("running", running, "int")})
    records = [{"i": at, "f": 0.5, "s": ""} for at in range(40)]
    assert of_columns("running(i)", own, records) == [...] * 40
    with pytest.raises(RecordError, match=r"another value alone \(20\) than among others \(210\)"):
        own.compile("running(i)").evaluate(records[0])


def test_what_concerns_the_shard_is_raised() -> None:
    def bad(numbers: pa.Array) -> pa.Array:
        raise CorruptionError("bad disk")

    own = Language({"bad": own_function("bad", bad, "int")})
    record = {"i": 1, "f": 0.5, "s": ""}
    assert of_columns("bad(i)", own, [record]) == [...]
    with pytest.raises(CorruptionError, match="bad disk"):
        own.compile("bad(i)").evaluate(record)


def test_a_bundle_is_computed_once() -> None:
    calls: list[int] = []

    def counted(numbers: pa.Array) -> pa.Array:
        calls.append(len(numbers))
        return numbers

    own = Language({"counted": own_function("counted", counted, "int")})
    of_columns("counted(i) + 1", own, [{"i": at, "f": 0.5, "s": ""} for at in range(50)])
    assert sorted(calls) == [1, 50]


@pytest.mark.parametrize("text", ["half(5)", "plain(i)", "half(gone)", f"joined(s, {2**63})"])
def test_what_has_no_column_form(text: str) -> None:
    own = {"plain": own_function("plain", abs), "half": own_function("half", half, "float")}
    own["joined"] = own_function("joined", joined, "str")
    compiled = Language(own).compile(text)
    with pytest.raises(NoColumns):
        value_over_columns(compiled.tree, FIELDS, compiled.dialect)
