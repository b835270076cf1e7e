"""The input of an aggregate over columns."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.columns.lazy_polars import pl


@dataclass(frozen=True, slots=True)
class Argument:
    """The input of an aggregate: a field of a kind (None: the whole record), where a condition holds."""

    field: pl.Expr
    kind: str
    condition: pl.Expr | None

    def counted(self) -> pl.Expr:
        """1 for a record that counts."""
        return (pl.lit(1) if self.condition is None else self.condition).cast(pl.Int64)

    def or_zero(self, column: pl.Expr) -> pl.Expr:
        """The column, 0 where the condition does not hold."""
        return column if self.condition is None else pl.when(self.condition).then(column).otherwise(0)

    def or_null(self) -> pl.Expr:
        """The field, null where the condition does not hold."""
        return self.field if self.condition is None else pl.when(self.condition).then(self.field).otherwise(None)
