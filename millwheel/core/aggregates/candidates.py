"""The candidates of a bundle: the records that an aggregate of whole records may keep.

Columns choose of each group the records that have fewer than ``k`` others before them by the orders
and the time, and all ties, which only their bytes can order. They alone become rows, and the row
form decides; or, where columns hold the groups, entries (record_entries.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Argument, ColumnAggregate, Inexact
from millwheel.core.aggregates.families.rows import ChosenRows, Entry
from millwheel.core.aggregates.record_entries import KeptEntries
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.expressions.columns import zero_without_sign
from millwheel.core.expressions.terms import Term
from millwheel.core.lazy_polars import pl

NUMBER, AT = "\0 number", "\0 at"
"""Columns of a bundle with the number of each record and its time. No field has such a name."""
_NUMBERS = 2**32  # Fixed: the places of records are above their numbers in one whole number


class RowCandidates(ColumnAggregate):
    """The candidates of each group, in order: a list with the rank and the number of each, in one
    whole number."""

    def __init__(
        self,
        column: str,
        aggregator: ChosenRows,
        terms: Sequence[Term],
        condition: pl.Expr | None,
        reads: Sequence[str],
    ) -> None:
        """``terms`` are the orders. They have the values of the row form where none of the fields
        ``reads`` is null."""
        exact = [pl.col(name).is_not_null() for name in reads]
        for term in terms:
            exact += [*term.exact, *term.present, term.column.is_not_null()]
            exact += [term.column.is_finite()] if term.kind == "float" else []
        super().__init__(column, Argument(pl.col(NUMBER), "int", condition, tuple(exact)))
        self._aggregator = aggregator
        self._kept = KeptEntries(aggregator, terms)
        self.terms = tuple(terms)
        self.descending = aggregator.descending
        self.exact = tuple(exact)
        """Each is False for the records for which a term differs from the value of the row form."""
        self.dtypes = {column: pl.List(pl.Int64)}

    def prepared(self) -> list[pl.Expr]:
        packed = self._standing() * _NUMBERS + pl.col(NUMBER)
        if self._argument.condition is not None:
            packed = pl.when(self._argument.condition).then(packed).otherwise(None)
        return [packed.alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        packed = pl.col(self._column).drop_nulls()
        k = self._aggregator.k
        last = packed.min() if k == 1 else packed.sort().head(k).last()
        chosen = packed.filter(packed // _NUMBERS <= last // _NUMBERS)
        return [(chosen if k == 1 else chosen.sort()).alias(self._column)]

    def accumulators(self, groups: pl.DataFrame, batch: ColumnBatch) -> list[list[Entry]]:
        """The row form's accumulator of each group. ``batch`` are the records, also with the
        columns of the fields within fields that the orders read."""
        lists = groups[self._column]
        ends = lists.list.len().cum_sum().to_list()
        packed = lists.explode(empty_as_null=False).to_numpy()
        entries = self._entries(batch, packed % _NUMBERS)
        some = [entries[start:end] for start, end in pairwise([0, *ends])]
        standing = packed // _NUMBERS
        if (standing[1:] == standing[:-1]).any():  # perhaps some differ only in their bytes
            return [self._aggregator.first(each) for each in some]
        return some

    # --- entries ----------------------------------------------------------------------------------

    def chosen(self, groups: pl.DataFrame, batch: ColumnBatch, most: int) -> pl.DataFrame:
        """The groups with their entries in place of the candidates. Raises Inexact where the
        entries of a group may take more than ``most`` bytes in rows."""
        lists = groups[self._column]
        lengths = lists.list.len().to_numpy()
        numbers = lists.explode(empty_as_null=False).to_numpy() % _NUMBERS
        records = batch.frame[numbers]
        if most and self._kept.most_bytes(records) > most:
            raise Inexact
        entries = self._kept.entries(records, batch.timestamps[numbers])
        of = np.repeat(np.arange(len(lists)), lengths)
        return groups.with_columns(self._kept.first(entries, of, len(lists)).alias(self._column))

    def together(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Merged groups with the entries that stay."""
        return groups.with_columns(self._kept.together(groups[self._column]).alias(self._column))

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self._column).explode(empty_as_null=False)]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return self._kept.result(groups[self._column])

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return self._kept.to_acc(row[self._column])

    def from_acc(self, acc: Any) -> list[Any]:
        raise Inexact  # only many together determine their type

    def from_accs(self, accs: Sequence[list[Entry]], like: pl.DataFrame | None) -> pl.Series:
        """The column for accumulators of the row form, of the type that it has in the groups
        ``like``. Raises Inexact."""
        kind = None if like is None else like.schema[self._column]
        return self._kept.from_accs(accs, kind).alias(self._column)

    # --- candidates -------------------------------------------------------------------------------

    def _standing(self) -> pl.Expr:
        """The rank of each record in the bundle; the same for records that differ only in their
        bytes."""
        count = pl.len().cast(pl.Int64) + 1
        descending = self.descending
        columns = [
            (zero_without_sign(term.column) if term.kind == "float" else term.column, down)
            for term, down in zip(self.terms, descending, strict=True)
        ]
        standing: pl.Expr | None = None
        for column, down in (*columns, (pl.col(AT), self._aggregator.latest)):
            rank = column.rank("dense", descending=down).cast(pl.Int64)
            standing = rank if standing is None else _dense(standing * count + rank)
        assert standing is not None
        return standing

    def _entries(self, batch: ColumnBatch, numbers: Any) -> list[Entry]:
        chosen = batch.frame[numbers]
        terms = [term.column.alias(str(at)) for at, term in enumerate(self.terms)]
        columns = [column.to_list() for column in chosen.select(terms).get_columns()]
        values = map(list, zip(*columns, strict=True)) if terms else repeat([])
        outer = [name for name in chosen.columns if not name.startswith("\0")]
        times, rows = batch.timestamps[numbers].tolist(), chosen.select(outer).to_dicts()
        return [[own, at, row] for own, at, row in zip(values, times, rows, strict=False)]


def numbered(batch: ColumnBatch) -> pl.DataFrame:
    """The fields of a bundle, with the columns that :class:`RowCandidates` reads beside them."""
    numbers = np.arange(len(batch), dtype=np.int64)
    return batch.frame.with_columns(
        pl.Series(NUMBER, numbers), pl.Series(AT, batch.timestamps, pl.Int64)
    )


def _dense(standings: pl.Expr) -> pl.Expr:
    return standings.rank("dense").cast(pl.Int64)
