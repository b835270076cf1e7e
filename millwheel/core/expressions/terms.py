"""Translated expressions: a column, its kind, and for which records it has the value of the row
form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millwheel.core.lazy_polars import dtype, pl

NULL = "null"
"""The kind of null itself. It is not a column: only functions that choose among values take it."""
RECORD = "record"
"""The kind of a field that has fields within. It is passed on, and compared with null."""
EXACT_INT = 2**53  # Fixed: a double holds every integer up to here
SAFE_INT = 2.0**62
"""A whole result whose float is smaller fits 64 bits, however the float was rounded."""


class NoColumns(Exception):
    """This cannot be expressed over columns; it is computed record by record."""


@dataclass(frozen=True, slots=True)
class Term:
    """A translated expression: its kind ("int", "float", "str", "bool"), and the constant if it is
    one.

    ``exact`` are expressions that are True for the records for which the column has the value of
    the row form. All others (an overflow, a division by zero) need the row form. ``present`` are
    expressions that are True where the value is not null: nothing is computed with nulls, but a
    step may pass them on.
    """

    column: pl.Expr
    kind: str
    constant: Any = None
    exact: tuple[pl.Expr, ...] = ()
    present: tuple[pl.Expr, ...] = ()

    @property
    def settled(self) -> Term:
        """The term for a computation, exact only where it is not null."""
        return replace(self, exact=(*self.exact, *self.present), present=())

    @property
    def double(self) -> pl.Expr:
        """The column as doubles."""
        return self.column.cast(pl.Float64)


def null_term() -> Term:
    """Null itself."""
    return Term(pl.lit(None), NULL, present=(pl.lit(False),))


def number_term(value: Any) -> Term:
    """The term of a constant number. Raises NoColumns for one that a column cannot hold exactly."""
    if type(value) is int and abs(value) <= EXACT_INT:
        return Term(pl.lit(value, pl.Int64), "int", value)
    if type(value) is float and math.isfinite(value):
        return Term(pl.lit(value, pl.Float64), "float", value)
    raise NoColumns


def kinds(terms: Sequence[Term], *expected: str) -> None:
    """Raises NoColumns unless the terms have these kinds, and one of them is not a constant."""
    if tuple(term.kind for term in terms) != expected:
        raise NoColumns
    if all(term.constant is not None for term in terms):
        raise NoColumns


def constant_of(term: Term) -> Any:
    """The constant of a term. Raises NoColumns if it is not a constant."""
    if term.constant is None:
        raise NoColumns
    return term.constant


def exact_of(terms: Sequence[Term]) -> tuple[pl.Expr, ...]:
    """Conditions for records of which all terms have the values of the row form."""
    return tuple(each for term in terms for each in term.exact)


def chosen(test: Term, yes: Term, no: Term) -> Term:
    """The value of ``yes`` where ``test`` holds, else that of ``no``: only that one is computed.
    One may be null itself. Raises NoColumns where their kinds differ."""
    kind = no.kind if yes.kind == NULL else yes.kind
    if (
        {yes.kind, no.kind} - {kind, NULL}
        or kind in (NULL, RECORD)
        or test.kind != "bool"
        or test.constant is not None
    ):
        raise NoColumns
    holds = test.column.fill_null(False)  # what is unknown does not
    column = pl.when(holds).then(yes.column).otherwise(no.column)
    exact, present = (
        (
            *(~holds | each for each in of_yes),
            *(holds | each for each in of_no),
        )
        for of_yes, of_no in ((yes.exact, no.exact), (yes.present, no.present))
    )
    return Term(column, kind, exact=(*test.settled.exact, *exact), present=present)


def by_text(act: Callable[[str], Any], texts: pl.Expr, kind: str) -> pl.Expr:
    """A function of Python on each text of a column; it may give null. Where the result is only
    used for some records, Polars may leave out the texts of the others."""

    def run(column_of_texts: pl.Series) -> pl.Series:
        values = [None if text is None else act(text) for text in column_of_texts.to_list()]
        return pl.Series(column_of_texts.name, values, dtype(kind))

    return texts.map_batches(run, dtype(kind), is_elementwise=True)


def by_numpy(act: Callable[..., Any], columns: Sequence[pl.Expr], kind: str) -> pl.Expr:
    """An operation of numpy on columns without nulls, as processors do it: Polars divides by a
    constant by multiplying by its reciprocal, which rounds twice, and 0.0 - 0.0 is -0.0 to it."""
    import numpy as np

    def run(arguments: Sequence[pl.Series]) -> pl.Series:
        with np.errstate(all="ignore"):
            result = act(*[each.to_numpy() for each in arguments])
        return pl.Series(arguments[0].name, result, dtype(kind))

    return pl.map_batches(list(columns), run, dtype(kind))


def by_steps(
    act: Callable[[Sequence[int]], Sequence[Any]], column: pl.Expr, step: int, kind: str
) -> pl.Expr:
    """A function of Python on whole numbers without nulls that gives the same result for all
    numbers between two multiples of ``step``: it is called once for each stretch."""
    import numpy as np

    def run(numbers: pl.Series) -> pl.Series:
        steps, indices = np.unique(numbers.to_numpy() // step, return_inverse=True)
        results = pl.Series(numbers.name, act([int(each) * step for each in steps]), dtype(kind))
        return results.gather(indices)

    return column.map_batches(run, dtype(kind), is_elementwise=True)
