"""Functions of decimals: their texts, their whole units, and casts to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from millwheel.core.expressions.declaration import Function, Nulls, table
from millwheel.core.expressions.terms import NULL, NoColumns, Term, by_steps, constant_of, kinds
from millwheel.core.instants.decimals import MOST_DIGITS, DecimalForm, decimal_form, shown
from millwheel.core.lazy_polars import pl


def cast_to_decimal(to: str) -> Callable[[Any], Decimal]:
    """A function that makes a value a decimal of a type. Both raise ValueError."""
    form = decimal_form(to)
    return lambda value: shown(_units(form, value), form.scale)


def _units(form: DecimalForm, value: Any) -> int:
    return form.rounded(value if isinstance(value, str | Decimal) else number_of(value))


def number_of(value: Any) -> int | float:
    """The value itself. Raises ValueError if it is not a number."""
    if isinstance(value, (int, float)):
        return value
    raise ValueError


def described(value: Any) -> str:
    """The value in words, within bounds: a list may be endlessly long as text."""
    return f"{value!r:.80}" if isinstance(value, str | float) else f"a {type(value).__name__}"


def _decimal_text(units: Any, digits: Any) -> str | None:
    """The text of a decimal. Null stays null."""
    if units is None:
        return None
    if not isinstance(units, int) or isinstance(units, bool):
        raise TypeError(f"needs a whole number of units, not {type(units).__name__}")
    _behind_the_point(digits)
    text = str(abs(units)).rjust(digits + 1, "0")
    sign = "-" if units < 0 else ""
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else f"{sign}{text}"


def _behind_the_point(digits: Any) -> None:
    if not isinstance(digits, int) or not 0 <= digits <= MOST_DIGITS:
        raise ValueError(f"the digits behind the point are 0 to {MOST_DIGITS}")


def _decimal_text_columns(terms: Sequence[Term]) -> Term:
    """The texts by columns: one for each different number."""
    kinds(terms, "int", "int")
    [units, _], digits = terms, constant_of(terms[1])
    if units.constant is not None:
        raise NoColumns
    made = by_steps(lambda numbers: _decimal_texts(numbers, digits), units.column, 1, "str")
    return Term(made, "str", exact=units.exact)


def _decimal_texts(numbers: Sequence[int], digits: int) -> Sequence[Any]:
    return [_decimal_text(each, digits) for each in numbers]


def _decimal_units(value: Any, digits: Any, behind: Any, *otherwise: Any) -> Any:
    """As ``cast``, in whole units."""
    form = _form(digits, behind)
    if value is None:
        return None
    try:
        return _units(form, value)
    except ValueError:
        if otherwise:
            return otherwise[0]
        raise ValueError(f"{described(value)} cannot be cast to {form.kind}") from None


def _form(digits: Any, behind: Any) -> DecimalForm:
    for each in (digits, behind):
        if type(each) is not int or abs(each) > MOST_DIGITS:
            raise ValueError(f"digits are whole numbers up to {MOST_DIGITS}")
    return decimal_form(f"decimal({digits}, {behind})")


def _decimal_units_columns(terms: Sequence[Term]) -> Term:
    """The units by columns; values that do not fit go by rows."""
    value, form = terms[0], _form(constant_of(terms[1]), constant_of(terms[2]))
    if value.constant is not None or value.kind not in ("int", "float", "str"):
        raise NoColumns
    if any(term.kind not in (NULL, "int") for term in terms[3:]):
        raise NoColumns
    made = value.column.map_batches(
        lambda values: _column_units(form, values), pl.Int64, is_elementwise=True
    )
    return Term(made, "int", exact=(*value.exact, made.is_not_null()))


def _column_units(form: DecimalForm, values: pl.Series) -> pl.Series:
    """The units of each different value, null where it has none."""
    different = values.unique()
    units = {each: _decimal_units(each, form.precision, form.scale, None) for each in different}
    return pl.Series(values.name, [units[each] for each in values], pl.Int64)


FUNCTIONS = table(
    Function(
        "decimal_text(units: int, digits: int) -> text",
        _decimal_text,
        "the text of a number of so many units, each one of the last of `digits` digits behind the"
        " point, such as cents; null stays null",
        (("decimal_text(1050, 2)", "10.50"), ("decimal_text(-5, 2)", "-0.05")),
        nulls=Nulls.TAKEN,
        checks={"digits": _behind_the_point},
        columns=_decimal_text_columns,
    ),
    Function(
        "decimal_units(value: any, digits: int, behind: int, otherwise?: any) -> any",
        _decimal_units,
        "the number, or the text of one, in units of the last of `behind` digits behind the point,"
        " such as cents: the nearest, of at most so many `digits`. What has no room is an error, or"
        " `otherwise` if it is given; null stays null",
        (
            ("decimal_units('10.5', 12, 2)", 1050),
            ("decimal_units(2.345, 12, 2)", 234),
            ("decimal_units('x', 12, 2, null)", None),
        ),
        nulls=Nulls.TAKEN,
        columns=_decimal_units_columns,
    ),
)
