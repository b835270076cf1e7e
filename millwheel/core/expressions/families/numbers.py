"""Functions of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from millwheel.core.expressions.declaration import Function, table
from millwheel.core.expressions.operators import power
from millwheel.core.expressions.terms import (
    SAFE_INT,
    NoColumns,
    Term,
    by_numpy,
    constant_of,
    exact_of,
    kinds,
)
from millwheel.core.lazy_polars import pl

MAX_DIGITS = 400
"""The most digits that ``round`` keeps or drops: more than a float has."""
_MOST_ZEROS = 18  # Fixed: such a power of ten, and half of one more, fit into 64 bits


def number_of(value: Any) -> int | float:
    """The value, if it is a number. Raises TypeError."""
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"needs a number, not {'null' if value is None else type(value).__name__}")


def _rounded(value: Any, digits: Any = None) -> Any:
    """``round`` with bounded digits: for many digits of a whole number Python computes an unbounded
    power of ten."""
    if isinstance(digits, int):
        _digits(digits)
    return round(value, digits)


def _digits(digits: int) -> None:
    if abs(digits) > MAX_DIGITS:
        raise ValueError(f"round() takes up to {MAX_DIGITS} digits")


def _mod(left: Any, right: Any) -> Any:
    """The remainder with the sign of the left."""
    left, right = number_of(left), number_of(right)
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    if right == 0:
        raise ZeroDivisionError("division by zero")
    return math.fmod(left, right)


def _quotient(left: Any, right: Any) -> int:
    """The quotient of whole numbers, cut towards 0."""
    if not (isinstance(left, int) and isinstance(right, int)):
        raise TypeError("quotient() is of whole numbers")
    quotient: int = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _not_zero(value: Any) -> None:
    if value == 0:
        raise ValueError("a division by zero")


def _log(value: Any, base: Any = None) -> float:
    return math.log(number_of(value)) if base is None else math.log(value, number_of(base))


def _sign(value: Any) -> int:
    return int(number_of(value) > 0) - int(value < 0)


def _abs_columns(terms: Sequence[Term]) -> Term:
    [term] = terms
    if term.constant is not None or term.kind not in ("int", "float"):
        raise NoColumns
    if term.kind == "float":
        return Term(term.column.abs(), "float", exact=term.exact)
    return Term(term.column.abs(), "int", exact=(*term.exact, term.double.abs() < SAFE_INT))


def _whole_columns(round_to: str) -> Callable[[Sequence[Term]], Term]:
    """A float rounded to a whole number by numpy's function of this name; whole numbers stay."""

    def columns(terms: Sequence[Term]) -> Term:
        import numpy as np

        if len(terms) > 1 or terms[0].constant is not None:
            raise NoColumns
        [term] = terms
        if term.kind == "int":
            return term
        kinds(terms, "float")
        fits = term.column.abs() < SAFE_INT
        column = pl.when(fits).then(term.column).otherwise(0.0)
        rounded = by_numpy(getattr(np, round_to), [column], "float")
        return Term(rounded.cast(pl.Int64), "int", exact=(*term.exact, fits))

    return columns


def _round_columns(terms: Sequence[Term]) -> Term:
    """``round`` by columns, of whole numbers also to tens, hundreds and so on."""
    if len(terms) == 1:
        return _whole_columns("rint")(terms)
    kinds(terms, "int", "int")
    number, digits = terms[0], constant_of(terms[1])
    if number.constant is not None or digits < -_MOST_ZEROS:
        raise NoColumns
    if digits >= 0:
        return number
    unit = 10**-digits
    fits = number.double.abs() < SAFE_INT
    column = pl.when(fits).then(number.column).otherwise(0)
    made = by_numpy(lambda values: _to_even(values, unit), [column], "int")
    return Term(made, "int", exact=(*number.exact, fits))


def _to_even(numbers: Any, unit: int) -> Any:
    """The nearest multiples of a unit; of two that are equally near, the even one."""
    quotients = numbers // unit
    rest = numbers - quotients * unit
    up = (rest > unit // 2) | ((rest == unit // 2) & (quotients % 2 == 1))
    return (quotients + up) * unit


def _mod_columns(terms: Sequence[Term]) -> Term:
    import numpy as np

    left, right = terms
    if left.kind != right.kind or left.kind not in ("int", "float"):
        raise NoColumns
    exact = _of_division(terms)
    if left.kind == "float":
        exact = (*exact, left.column.is_finite())
    return Term(by_numpy(np.fmod, [left.column, _spread(terms)], left.kind), left.kind, exact=exact)


def _quotient_columns(terms: Sequence[Term]) -> Term:
    import numpy as np

    kinds(terms, "int", "int")
    left, right = terms

    def cut(above: Any, below: Any) -> Any:
        return (above - np.fmod(above, below)) // below

    exact = _of_division(terms)
    if right.constant is None or right.constant == -1:
        exact = (*exact, left.double.abs() < SAFE_INT)
    return Term(by_numpy(cut, [left.column, _spread(terms)], "int"), "int", exact=exact)


def _of_division(terms: Sequence[Term]) -> tuple[pl.Expr, ...]:
    """Conditions for records whose division has a result."""
    if terms[0].constant is not None or terms[1].constant == 0:
        raise NoColumns
    if terms[1].constant is not None:
        return exact_of(terms)
    return (*exact_of(terms), terms[1].column != 0)


def _spread(terms: Sequence[Term]) -> pl.Expr:
    """The divisor, which is never 0 where the column is computed."""
    divisor = terms[1]
    if divisor.constant is not None:
        return divisor.column
    return pl.when(divisor.column == 0).then(1).otherwise(divisor.column)


def _root_columns(terms: Sequence[Term]) -> Term:
    import numpy as np

    kinds(terms, "float")
    return Term(
        by_numpy(np.sqrt, [terms[0].column], "float"),
        "float",
        exact=(*terms[0].exact, terms[0].column >= 0),
    )


def _chosen_columns(better: Callable[[Any, Any], Any]) -> Callable[[Sequence[Term]], Term]:
    """The first of the best, as Python's ``min`` and ``max`` give it."""

    def columns(terms: Sequence[Term]) -> Term:
        kinds(terms, *[terms[0].kind] * len(terms))
        if terms[0].kind not in ("int", "float") or len(terms) < 2:
            raise NoColumns
        best = terms[0].column
        for term in terms[1:]:
            best = pl.when(better(term.column, best)).then(term.column).otherwise(best)
        return Term(best, terms[0].kind, exact=exact_of(terms))

    return columns


FUNCTIONS = table(
    Function(
        "abs(number: number) -> number",
        abs,
        "without its sign",
        (("abs(-2.5)", 2.5),),
        columns=_abs_columns,
    ),
    Function(
        "sign(number: number) -> int",
        _sign,
        "-1, 0 or 1",
        (("sign(-2.5)", -1),),
    ),
    Function(
        "round(number: number, digits?: int) -> number",
        _rounded,
        "the nearest whole number, or the nearest with so many digits behind the point; a half goes"
        " to the even neighbour",
        (("round(2.5)", 2), ("round(0.125, 2)", 0.12), ("round(1234, -2)", 1200)),
        checks={"digits": _digits},
        columns=_round_columns,
    ),
    Function(
        "floor(number: number) -> int",
        math.floor,
        "the whole number at or below it",
        (("floor(-2.5)", -3),),
        columns=_whole_columns("floor"),
    ),
    Function(
        "ceil(number: number) -> int",
        math.ceil,
        "the whole number at or above it",
        (("ceil(-2.5)", -2),),
        columns=_whole_columns("ceil"),
    ),
    Function(
        "mod(left: number, right: number) -> number",
        _mod,
        "the remainder with the sign of `left`, as SQL's MOD and %; the operator `%` has that of"
        " `right`",
        (("mod(-7, 3)", -1), ("mod(7, -3)", 1), ("mod(-5.5, 2)", -1.5)),
        checks={"right": _not_zero},
        columns=_mod_columns,
    ),
    Function(
        "quotient(left: int, right: int) -> int",
        _quotient,
        "the whole quotient, cut towards 0, as SQL's `/`; the operator `//` rounds down",
        (("quotient(-7, 3)", -2), ("quotient(7, 3)", 2)),
        checks={"right": _not_zero},
        columns=_quotient_columns,
    ),
    Function(
        "power(base: number, exponent: number) -> number",
        lambda base, exponent: power(number_of(base), number_of(exponent)),
        "as `base ** exponent`",
        (("power(2, 10)", 1024),),
    ),
    Function(
        "sqrt(number: number) -> float",
        math.sqrt,
        "the square root",
        (("sqrt(2.25)", 1.5),),
        columns=_root_columns,
    ),
    Function(
        "exp(number: number) -> float",
        math.exp,
        "e to this power",
        (("exp(0)", 1.0),),
    ),
    Function(
        "log(number: number, base?: number) -> float",
        _log,
        "the natural logarithm, or that to a base",
        (("log(1)", 0.0), ("log(8, 2)", 3.0)),
    ),
    Function(
        "log10(number: number) -> float",
        math.log10,
        "the logarithm to the base 10",
        (("log10(1000)", 3.0),),
    ),
    Function(
        "min(value: any, more...: any) -> any",
        min,
        "the least of its arguments, or of a list",
        (("min(3, 1, 2)", 1), ("min(('b', 'a'))", "a")),
        columns=_chosen_columns(operator.lt),
    ),
    Function(
        "max(value: any, more...: any) -> any",
        max,
        "the greatest of its arguments, or of a list",
        (("max(3, 1, 2)", 3),),
        columns=_chosen_columns(operator.gt),
    ),
)
