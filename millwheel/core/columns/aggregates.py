"""The aggregates that have a column form, and how each is grouped, merged and read.

Each keeps its accumulator in columns of its own, whose names begin with ``<column>``. ``to_acc`` and ``from_acc``
convert to and from the accumulator of the row form, so that either form can continue from the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from millwheel.core.aggregates.choice import TopK
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.aggregates.sketches import ApproxCountDistinct, Quantiles
from millwheel.core.columns.arguments import Argument, calculated, without_signed_zero
from millwheel.core.columns.expressions import NoColumns, condition_over_columns
from millwheel.core.columns.fixed_sums import (
    Unfit,
    as_floats,
    check_int64,
    extremes,
    fits,
    fraction_part,
    from_exact,
    to_exact,
    whole_part,
)
from millwheel.core.columns.functions.adding import Cells
from millwheel.core.columns.functions.bins import Binned
from millwheel.core.columns.functions.coupons import Sketched
from millwheel.core.columns.functions.lists import Distincts, Largest
from millwheel.core.columns.functions.moments import moments
from millwheel.core.columns.lazy_polars import dtype, pl
from millwheel.core.pipeline.spec import AggregateSpec

_EXACT_INT = 2**53  # Fixed: a double holds every integer up to here


class ColumnAggregate(Protocol):
    """One output field. ``dtypes`` are those of its columns, by name."""

    dtypes: dict[str, Any]
    grows: bool
    """Whether they take more, the more records there are."""

    def staged(self) -> list[pl.Expr]:
        """Columns of a bundle from which several of :meth:`prepared` are made, so that they are computed once."""

    def prepared(self) -> list[pl.Expr]:
        """Columns of a bundle that :meth:`grouped` needs: one expression per entry of ``dtypes``, so named."""

    def grouped(self) -> list[pl.Expr]:
        """How these columns are put together over the records of a group."""

    def merged(self) -> list[pl.Expr]:
        """How they are put together over groups of one key and window."""

    def result(self, groups: pl.DataFrame) -> pl.Series:
        """The contents of a pane. Unfit when no column can hold them."""

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        """The row form's accumulator of one group."""

    def from_acc(self, acc: Any) -> list[Any]:
        """The inverse, one value per entry of ``dtypes``. Unfit when the columns cannot hold it."""

    def unfit(self) -> list[pl.Expr]:
        """Expressions over a bundle that are False when the columns cannot hold it."""


class _Direct(ABC):
    """What is made of the fields in one stage, and takes as much for one record as for many."""

    grows = False

    def staged(self) -> list[pl.Expr]:
        return []

    def grouped(self) -> list[pl.Expr]:
        return self.merged()

    @abstractmethod
    def merged(self) -> list[pl.Expr]:
        """See :class:`ColumnAggregate`."""


class Additive(_Direct):
    """What adding up gives: counts and sums, see :mod:`.functions.adding`."""

    @abstractmethod
    def addends(self) -> dict[str, pl.Expr]:
        """Columns of a bundle that :meth:`added` needs, by names that begin with that of its column."""

    @abstractmethod
    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        """The columns of the groups, one for each entry of ``dtypes``. Raises Unadded."""


class Counted(Additive):
    """count."""

    def __init__(self, column: str, argument: Argument) -> None:
        self._column = column
        self._argument = argument
        self.dtypes: dict[str, Any] = {column: pl.Int64}

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.counted().alias(self._column)]

    def addends(self) -> dict[str, pl.Expr]:
        return _condition_of(self._argument, self._column)

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        return [_counts(addends, self._column, cells)]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self._column).sum()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return groups[self._column]

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return row[self._column]

    def from_acc(self, acc: Any) -> list[Any]:
        return [acc]

    def unfit(self) -> list[pl.Expr]:
        return self._argument.unfit()


class Summed(Additive):
    """sum, of whole numbers or of floats. ``<column>n`` counts, since the row form's sum of no floats is a whole 0."""

    def __init__(self, column: str, argument: Argument) -> None:
        self._column = column
        self._argument = argument
        self._floats = argument.kind == "float"
        self.dtypes: dict[str, Any] = {column: pl.Int128}
        if self._floats:
            self.dtypes[f"{column}f"] = pl.Int128
        self.dtypes[f"{column}n"] = pl.Int64

    def prepared(self) -> list[pl.Expr]:
        argument, column = self._argument, self._column
        count = argument.counted().alias(f"{column}n")
        if not self._floats:
            return [argument.or_zero(argument.field.cast(pl.Int128)).alias(column), count]
        whole, fraction = whole_part(argument.field), fraction_part(argument.field)
        return [argument.or_zero(whole).alias(column), argument.or_zero(fraction).alias(f"{column}f"), count]

    def addends(self) -> dict[str, pl.Expr]:
        field = self._argument.field if self._floats else self._argument.field.cast(pl.Int64)
        return {self._column: self._argument.or_zero(field)} | _condition_of(self._argument, f"{self._column}n")

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        values, count = addends[self._column].to_numpy(), _counts(addends, f"{self._column}n", cells)
        return [*cells.floats(values), count] if self._floats else [cells.wholes(values), count]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(name).sum() for name in self.dtypes]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        if not self._floats:
            return check_int64(groups[self._column])
        return as_floats(groups[self._column], groups[f"{self._column}f"])

    def of_nothing(self, groups: pl.DataFrame) -> bool:
        """Whether a group has a sum of no floats."""
        return self._floats and groups[f"{self._column}n"].min() == 0

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        whole = row[self._column]
        if self._floats and row[f"{self._column}n"]:
            return to_exact(whole, row[f"{self._column}f"])
        return [whole if -(2**63) <= whole < 2**63 else str(whole)]

    def from_acc(self, acc: Any) -> list[Any]:
        if not self._floats:
            if len(acc) > 1:
                raise Unfit
            return [int(acc[0]), 1]
        return [*from_exact(acc), len(acc) - 1]

    def unfit(self) -> list[pl.Expr]:
        checks = self._argument.unfit()
        return [*checks, fits(self._argument.field)] if self._floats else checks


class Averaged(Additive):
    """mean: a sum, and how many went in."""

    def __init__(self, column: str, argument: Argument) -> None:
        self._column = column
        self._sum = Summed(column, argument)
        self.dtypes = self._sum.dtypes
        self.prepared = self._sum.prepared
        self.unfit = self._sum.unfit

    def addends(self) -> dict[str, pl.Expr]:
        return self._sum.addends()

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        return self._sum.added(addends, cells)

    def merged(self) -> list[pl.Expr]:
        return self._sum.merged()

    def result(self, groups: pl.DataFrame) -> pl.Series:
        counts = groups[f"{self._column}n"]
        if f"{self._column}f" in self.dtypes:
            sums = as_floats(groups[self._column], groups[f"{self._column}f"])
        else:
            whole = groups[self._column]
            if max(map(abs, extremes(whole))) > _EXACT_INT:
                raise Unfit
            sums = whole.cast(pl.Float64)
        mean: pl.Series = sums / counts.replace(0, None)
        return mean.alias(self._column)

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return [row[f"{self._column}n"], self._sum.to_acc(row)]

    def from_acc(self, acc: Any) -> list[Any]:
        *parts, _ = self._sum.from_acc(acc[1])
        return [*parts, acc[0]]


def _condition_of(argument: Argument, name: str) -> dict[str, pl.Expr]:
    return {} if argument.condition is None else {name: argument.condition}


def _counts(addends: pl.DataFrame, name: str, cells: Cells) -> pl.Series:
    return cells.counts(addends[name].to_numpy() if name in addends.columns else None)


class Extremal(_Direct):
    """min or max; null when no record counted."""

    def __init__(self, column: str, argument: Argument, largest: bool) -> None:
        self._column = column
        self._argument = without_signed_zero(argument)
        self.largest = largest
        self.dtypes: dict[str, Any] = {column: dtype(argument.kind)}

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.or_null().alias(self._column)]

    def merged(self) -> list[pl.Expr]:
        column = pl.col(self._column)
        return [column.max() if self.largest else column.min()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return groups[self._column]

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        value = row[self._column]
        return [] if value is None else [value]

    def from_acc(self, acc: Any) -> list[Any]:
        return [acc[0] if acc else None]

    def unfit(self) -> list[pl.Expr]:
        return self._argument.unfit()


_NUMBERS = ("int", "float")
_MAKERS: dict[str, tuple[Callable[[str, Argument], ColumnAggregate], Sequence[str]]] = {
    "sum": (Summed, _NUMBERS),
    "mean": (Averaged, _NUMBERS),
    "min": (lambda column, argument: Extremal(column, argument, False), ("int", "float", "str")),
    "max": (lambda column, argument: Extremal(column, argument, True), ("int", "float", "str")),
}

_VALUES = ("int", "float", "str")
_KINDS: Mapping[str, Sequence[str]] = {
    "variance": _NUMBERS,
    "stddev": _NUMBERS,
    "quantile": _NUMBERS,
    "quantiles": _NUMBERS,
    "count_distinct": _VALUES,
    "approx_count_distinct": _VALUES,
    "top_k": _VALUES,
}
"""Further functions, and the kinds of fields of which they take every value that columns hold."""


def column_aggregate(
    spec: AggregateSpec, column: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> ColumnAggregate:
    """The column form of an aggregate over declared fields. Raises NoColumns where there is none."""
    condition = condition_over_columns(compile_expression(spec.condition).tree, fields) if spec.condition else None
    argument = _argument(spec, fields, condition, compile_expression)
    if spec.function == "count":
        return Counted(column, argument)
    if spec.function not in _MAKERS:
        return _of_function(spec, column, argument)
    if spec.options:
        raise NoColumns
    make, kinds = _MAKERS[spec.function]
    if argument.kind not in kinds:
        raise NoColumns
    return make(column, argument)


def _of_function(spec: AggregateSpec, column: str, argument: Argument) -> ColumnAggregate:
    if argument.kind not in _KINDS.get(spec.function, ()):
        raise NoColumns
    aggregator = make_aggregator(spec.function, spec.options, None).growing()
    if spec.function in ("variance", "stddev"):
        return moments(spec.function, column, argument, spec.options)
    if isinstance(aggregator, Quantiles):
        return Binned(column, argument, aggregator)
    if isinstance(aggregator, TopK):
        return Largest(column, argument, aggregator.k)
    if isinstance(aggregator, ApproxCountDistinct):
        return Sketched(column, argument, aggregator)
    return Distincts(column, argument, aggregator)


def _argument(
    spec: AggregateSpec, fields: Mapping[str, str], condition: pl.Expr | None, compile_expression: Callable[[str], Any]
) -> Argument:
    if spec.argument in fields:
        return Argument(pl.col(spec.argument), fields[spec.argument], condition)
    if not spec.argument:
        if spec.function != "count":  # the whole record
            raise NoColumns
        return Argument(pl.lit(1), "int", condition)
    return calculated(compile_expression(spec.argument).tree, fields, condition)
