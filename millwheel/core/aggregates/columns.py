"""The column form of aggregates: their common base, and their input.

Each keeps its accumulator in columns of its own, whose names begin with ``<column>``. ``to_acc``
and ``from_acc`` convert to and from the accumulator of the row form, so that either form can
continue from the other.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from millwheel.core.expressions.columns import number_over_columns, zero_without_sign
from millwheel.core.expressions.declaration import PLAIN, Dialect
from millwheel.core.expressions.scope import ANY_VALUE
from millwheel.core.lazy_polars import dtype, pl


class Inexact(Exception):
    """A number that the column form cannot hold exactly."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The input of an aggregate: a field or expression of a kind, where a condition holds.

    ``exact`` are expressions that are False for the records for which the column may not have the
    row form's value.
    """

    field: pl.Expr
    kind: str
    condition: pl.Expr | None
    exact: tuple[pl.Expr, ...] = ()

    def exactness_checks(self) -> list[pl.Expr]:
        """An expression over a bundle that is False when a record that counts needs the row form;
        none if no record can."""
        if not self.exact:
            return []
        exact = pl.all_horizontal(self.exact)
        return [(exact if self.condition is None else exact | ~self.condition).all()]

    def counted(self) -> pl.Expr:
        """1 for a record that counts."""
        return (pl.lit(1) if self.condition is None else self.condition).cast(pl.Int64)

    def or_zero(self, column: pl.Expr) -> pl.Expr:
        """The column, 0 where the condition does not hold."""
        return (
            column if self.condition is None else pl.when(self.condition).then(column).otherwise(0)
        )

    def or_null(self) -> pl.Expr:
        """The field, null where the condition does not hold."""
        return (
            self.field
            if self.condition is None
            else pl.when(self.condition).then(self.field).otherwise(None)
        )


def without_signed_zero(argument: Argument) -> Argument:
    """The argument with 0.0 for -0.0, as in the row form."""
    return (
        replace(argument, field=zero_without_sign(argument.field))
        if argument.kind == "float"
        else argument
    )


def not_null(argument: Argument) -> Argument:
    """The argument, where it is not null. A value that differs from the row form's counts as not
    null, so that it is found."""
    there = argument.field.is_not_null()
    if argument.exact:
        there = there | ~pl.all_horizontal(argument.exact)
    return replace(
        argument,
        field=argument.field.fill_null(ANY_VALUE[argument.kind]),
        condition=there if argument.condition is None else argument.condition & there,
    )


def calculated(
    tree: ast.expr,
    fields: Mapping[str, str],
    condition: pl.Expr | None,
    dialect: Dialect = PLAIN,
) -> Argument:
    """The value of an arithmetic expression, where a condition holds. Raises NoColumns where it has
    no column form."""
    term = number_over_columns(tree, fields, dialect)
    column = term.column
    if term.exact and condition is not None:  # records that do not count may be divided by zero
        column = pl.when(pl.all_horizontal(term.exact)).then(column).otherwise(0)
    return Argument(column, term.kind, condition, term.exact)


def negative(name: str, kind: Any) -> pl.Expr:
    """A column of numbers with the other sign. (Polars negates no Int128.)"""
    return (pl.lit(0, kind) - pl.col(name)).alias(name)


class OverRanges(Enum):
    """The way in which the columns of an aggregate over ranges of groups follow from the
    groups'."""

    SUMS = auto()
    SMALLEST = auto()
    LARGEST = auto()
    UNKNOWN = auto()


class ColumnAggregate(ABC):
    """The column form of one output field. ``dtypes`` are those of its columns, by name."""

    dtypes: Mapping[str, Any]
    grows = False
    """Whether its columns take more, the more records there are."""
    subtracts = False
    """Whether records can be taken out of a group again: see :meth:`negated`."""
    over_ranges = OverRanges.UNKNOWN

    def __init__(self, column: str, argument: Argument) -> None:
        self._column = column
        self._argument = argument

    def staged(self) -> list[pl.Expr]:
        """Columns of a bundle from which several of :meth:`prepared` are made, so that they are
        computed once."""
        return []

    @abstractmethod
    def prepared(self) -> list[pl.Expr]:
        """Columns of a bundle that :meth:`grouped` needs: one expression per entry of ``dtypes``,
        so named."""

    def grouped(self) -> list[pl.Expr]:
        """The expressions that merge these columns over the records of a group."""
        return self.merged()

    @abstractmethod
    def merged(self) -> list[pl.Expr]:
        """The expressions that merge them over groups of one key and window."""

    def negated(self) -> list[pl.Expr]:
        """The columns of groups of records that are taken back: merged with groups that have these
        records, they leave the rest."""
        return [negative(name, kind) for name, kind in self.dtypes.items()]

    @abstractmethod
    def result(self, groups: pl.DataFrame) -> pl.Series:
        """The contents of a pane. Inexact when no column can hold them."""

    @abstractmethod
    def to_acc(self, row: Mapping[str, Any]) -> Any:
        """The row form's accumulator of one group."""

    @abstractmethod
    def from_acc(self, acc: Any) -> list[Any]:
        """The inverse, one value per entry of ``dtypes``. Inexact when the columns cannot hold
        it."""

    def exactness_checks(self) -> list[pl.Expr]:
        """Expressions over a bundle that are False when the columns cannot hold it."""
        return self._argument.exactness_checks()

    def lasting(self) -> ColumnAggregate:
        """Its form for groups without an end: of values that grow, a bundle writes the new part."""
        return self

    def of_no_floats(self, groups: pl.DataFrame) -> bool:
        """Whether a group has an empty sum of floats, which in the row form is a whole 0."""
        return False


class Listed(ColumnAggregate):
    """A list for each group of the values that make a difference."""

    grows = True

    def __init__(self, column: str, argument: Argument) -> None:
        super().__init__(column, without_signed_zero(argument))
        self._type: type = {"int": int, "float": float, "str": str}[argument.kind]
        self.dtypes = {column: pl.List(dtype(argument.kind))}

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.or_null().alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        return [self._kept(pl.col(self._column).drop_nulls())]

    def merged(self) -> list[pl.Expr]:
        return [self._kept(pl.col(self._column).explode().drop_nulls())]

    @abstractmethod
    def _kept(self, values: pl.Expr) -> pl.Expr:
        """The values of a group that make a difference."""
