"""The input of an aggregate over columns."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millwheel.core.columns.expressions import number_over_columns, zero_without_sign
from millwheel.core.columns.lazy_polars import pl


@dataclass(frozen=True, slots=True)
class Argument:
    """The input of an aggregate: a field or expression of a kind, where a condition holds.

    ``exact`` are expressions that are False for the records for which the column may not have the row form's value.
    """

    field: pl.Expr
    kind: str
    condition: pl.Expr | None
    exact: tuple[pl.Expr, ...] = ()

    def unfit(self) -> list[pl.Expr]:
        """An expression over a bundle that is False when a record that counts needs the row form; none if no record
        can."""
        if not self.exact:
            return []
        exact = pl.all_horizontal(self.exact)
        return [(exact if self.condition is None else exact | ~self.condition).all()]

    def counted(self) -> pl.Expr:
        """1 for a record that counts."""
        return (pl.lit(1) if self.condition is None else self.condition).cast(pl.Int64)

    def or_zero(self, column: pl.Expr) -> pl.Expr:
        """The column, 0 where the condition does not hold."""
        return column if self.condition is None else pl.when(self.condition).then(column).otherwise(0)

    def or_null(self) -> pl.Expr:
        """The field, null where the condition does not hold."""
        return self.field if self.condition is None else pl.when(self.condition).then(self.field).otherwise(None)


def without_signed_zero(argument: Argument) -> Argument:
    """As in the row form -0.0 becomes 0.0."""
    return replace(argument, field=zero_without_sign(argument.field)) if argument.kind == "float" else argument


def calculated(tree: ast.expr, fields: Mapping[str, str], condition: pl.Expr | None) -> Argument:
    """The value of an arithmetic expression, where a condition holds. Raises NoColumns where it has no column form."""
    term = number_over_columns(tree, fields)
    column = term.column
    if term.exact and condition is not None:  # records that do not count may be divided by zero
        column = pl.when(pl.all_horizontal(term.exact)).then(column).otherwise(0)
    return Argument(column, term.kind, condition, term.exact)
