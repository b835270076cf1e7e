"""Fields within fields as columns."""

import polars as pl
import pytest

from millwheel.core.expressions.columns import number_over_columns
from millwheel.core.expressions.inner_fields import (
    as_records,
    columns_read,
    inner_name,
    is_inner,
    is_within,
    kind_with_inner,
    plainly_named,
    with_inner_fields,
)
from millwheel.core.expressions.language import compile_expression

PRICE = inner_name("bid", "price")
FRAME = pl.DataFrame({"bid": [{"price": 3, "by": "a"}, {"price": 5, "by": "b"}], "n": [1, 2]})


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("n", ("n",)),
        ("bid.price", (PRICE,)),
        ("bid.price * n", ("n", PRICE)),
        ("bid.price + bid.fee", (PRICE, inner_name("bid", "fee"))),
        ("bid.price if bid != null else n", ("bid", "n", PRICE)),
        ("bid.price.amount + n", ("n", inner_name("bid", "price", "amount"))),
        ("len(bid.tags[0].name)", (inner_name("bid", "tags"),)),
    ],
)
def test_an_expression_reads_inner_fields_in_place_of_the_outer_one(
    text: str, columns: tuple[str, ...]
) -> None:
    found = columns_read(compile_expression(text))
    assert sorted(found) == sorted(columns)


def test_inner_fields_become_columns() -> None:
    frame = with_inner_fields(FRAME, [PRICE, "n", inner_name("bid", "none"), inner_name("n", "x")])
    assert frame.columns == ["bid", "n", PRICE]
    assert frame[PRICE].to_list() == [3, 5]
    assert with_inner_fields(FRAME, ["n"]) is FRAME


def test_they_are_computed_with_as_others() -> None:
    term = number_over_columns(compile_expression("bid.price * n").tree, {PRICE: "int", "n": "int"})
    frame = with_inner_fields(FRAME, [PRICE])
    assert frame.select(term.column.alias("made"))["made"].to_list() == [3, 10]


def test_a_field_with_a_dot_in_its_name_is_another_one() -> None:
    assert is_inner(PRICE)
    assert not is_inner("bid.price")
    assert plainly_named(PRICE) == "bid.price"


def test_fields_lie_as_deep_as_they_are_asked_for() -> None:
    deep = pl.DataFrame({"offer": FRAME["bid"].alias("bid").to_frame().to_struct("offer")})
    name = inner_name("offer", "bid", "price")
    assert with_inner_fields(deep, [name])[name].to_list() == [3, 5]


def test_columns_of_inner_fields_become_records_again() -> None:
    deep = inner_name("bid", "by", "name")
    columns = [pl.Series("n", [1]), pl.Series(PRICE, [3]), pl.Series(deep, ["a"])]
    frame = pl.DataFrame(as_records(columns))
    assert frame.to_dicts() == [{"n": 1, "bid": {"price": 3, "by": {"name": "a"}}}]
    assert [kind_with_inner(kind) for kind in frame.schema.values()] == ["int", "record"]
    assert with_inner_fields(frame, [PRICE, deep])[deep].to_list() == ["a"]


def test_a_null_is_that_of_the_field_or_that_of_a_record_around_it() -> None:
    values = [{"by": {"name": None}}, {"by": None}, None]
    frame = pl.DataFrame(
        {"bid": values}, {"bid": pl.Struct({"by": pl.Struct({"name": pl.String})})}
    )
    name = inner_name("bid", "by", "name")
    assert with_inner_fields(frame, [name])[name].to_list() == [None, None, None]
    assert frame.select(is_within(name)).to_series().to_list() == [True, False, False]
