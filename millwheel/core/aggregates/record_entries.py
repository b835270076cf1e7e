"""Whole records that columns keep for the groups of an aggregation: a list of entries for each
group, in order. An entry has the values that the order reads, the time, and the record.

The type of the records is that of the batches that they come from. Records of two types are not
merged: those of another type than the held entries are processed as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.families.rows import ChosenRows, Entry, as_it_stands, content
from millwheel.core.expressions.columns import zero_without_sign
from millwheel.core.expressions.terms import Term
from millwheel.core.lazy_polars import dtype, pl

AT, ROW = "at", "row"
"""The fields of an entry, beside the values of its order."""
_GROUP, _ENTRY = "group", "entry"
_NUMBER_BYTES, _NAME_BYTES = 9, 5
"""Fixed: the most that msgpack takes for a number, and for the size of a text."""
_VALUES: dict[str, type] = {"int": int, "float": float, "str": str}
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class KeptEntries:
    """The entries of an aggregate whose orders are ``terms``."""

    def __init__(self, aggregator: ChosenRows, terms: Sequence[Term]) -> None:
        self._aggregator = aggregator
        self._terms = tuple(terms)
        self._names = [f"o{index}" for index in range(len(terms))]

    def entries(self, records: pl.DataFrame, timestamps: Int64s) -> pl.DataFrame:
        """Records as entries. Columns whose names begin with a mark are not fields of records.
        Raises Inexact for records without fields."""
        values = [
            term.column.alias(name) for term, name in zip(self._terms, self._names, strict=True)
        ]
        outer = [name for name in records.columns if not name.startswith("\0")]
        if not outer:
            raise Inexact
        # with_columns: a constant is as long as the rest
        ordered = records.lazy().with_columns(values).select(self._names)
        columns = ordered.collect(engine="in-memory").get_columns()
        at, rows = pl.Series(AT, timestamps, pl.Int64), records.select(outer).to_struct(ROW)
        return pl.DataFrame([*columns, at, rows])

    def first(self, entries: pl.DataFrame, groups: Int64s, count: int) -> pl.Series:
        """The lists of so many groups; ``groups`` has the group of each entry."""
        columns = sort_columns(
            [entries[name] for name in self._names],
            [term.kind for term in self._terms],
            self._aggregator.descending,
        )
        at = entries[AT].to_numpy()
        columns.append(~at if self._aggregator.latest else at)
        most = self._aggregator.k
        rows = entries[ROW]
        order, ranks = in_order(groups, columns, most, lambda some: rows[some].to_list())
        stays = order[ranks < most]
        return listed(entries.to_struct(_ENTRY)[stays], groups[stays], count)

    def together(self, lists: pl.Series) -> pl.Series:
        """The lists of merged groups, from the lists of their parts."""
        lengths = lists.list.len().to_numpy()
        entries = lists.explode(empty_as_null=False).struct.unnest()
        return self.first(entries, np.repeat(np.arange(len(lists)), lengths), len(lists))

    def result(self, lists: pl.Series) -> pl.Series:
        """The contents of panes."""
        if not isinstance(lists.dtype.inner, pl.Struct):  # type: ignore[attr-defined]
            raise Inexact  # the type of records is not known before there are any
        if self._aggregator.one:
            return lists.list.first().struct.field(ROW)
        lengths = lists.list.len().to_numpy().astype(np.int64)
        rows = lists.explode(empty_as_null=False).struct.field(ROW)
        groups = np.repeat(np.arange(len(lists)), lengths)
        if name := self._aggregator.rank:
            ranks = pl.Series(name, ranks_of(groups) + 1, pl.Int64)
            rows = rows.struct.unnest().with_columns(ranks).to_struct(ROW)
        return listed(rows, groups, len(lists))

    def to_acc(self, entries: Sequence[dict[str, Any]]) -> list[Entry]:
        """The row form's accumulator."""
        return [[[entry[name] for name in self._names], entry[AT], entry[ROW]] for entry in entries]

    def from_accs(self, accs: Sequence[list[Entry]], like: Any) -> pl.Series:
        """The inverse for many. ``like``: the type of the held lists (None: there are none). Raises
        Inexact where no column can hold the records unchanged."""
        flat = [entry for acc in accs for entry in acc]
        if not flat and like is None:
            raise Inexact
        held = {each.name: each.dtype for each in like.inner.fields} if like is not None else {}
        columns = [
            _column(name, [entry[0][index] for entry in flat], term.kind)
            for index, (name, term) in enumerate(zip(self._names, self._terms, strict=True))
        ]
        at = pl.Series(AT, [entry[1] for entry in flat], pl.Int64)
        rows = _records([entry[2] for entry in flat], held.get(ROW))
        groups = np.repeat(np.arange(len(accs)), [len(acc) for acc in accs])
        return listed(pl.DataFrame([*columns, at, rows]).to_struct(_ENTRY), groups, len(accs))

    def most_bytes(self, records: pl.DataFrame) -> int:
        """At least as many bytes as the row form takes for the entries of a group of these
        records."""
        size = sum(map(_most_bytes, records.get_columns()))
        return self._aggregator.k * (2 * size + _NUMBER_BYTES * (len(self._names) + 4))


def sort_columns(
    values: Iterable[pl.Series], kinds: Iterable[str], descending: Iterable[bool]
) -> list[npt.NDArray[Any]]:
    """A column for each order, whose values are less the earlier a record comes."""
    columns = []
    for column, kind, down in zip(values, kinds, descending, strict=True):
        if kind == "float":
            signed = column.to_frame().select(zero_without_sign(pl.col(column.name)))
            numbers = signed.to_series().to_numpy()
            columns.append(-numbers if down else numbers)
            continue
        if kind != "int":
            column = column.rank("dense").cast(pl.Int64)
        columns.append(~column.to_numpy() if down else column.to_numpy())
    return columns


def in_order(
    groups: Int64s,
    columns: Sequence[npt.NDArray[Any]],
    most: int,
    rows: Callable[[Int64s], list[Any]],
) -> tuple[Int64s, Int64s]:
    """The indexes of records, group by group and in the order of some columns, and the rank of
    each, from 0. The bytes of ``rows`` order ties that may be among the first ``most``."""
    columns = [groups, *columns]
    order = np.lexsort(columns[::-1])
    alike = np.ones(len(order), np.bool_)
    for column in columns:
        inorder = column[order]
        alike[1:] &= inorder[1:] == inorder[:-1]
    alike[:1] = False
    ranks = ranks_of(groups[order])
    if alike.any():
        order = _by_bytes(order, alike, ranks, most, rows)
    return order, ranks


def _by_bytes(
    order: Int64s, alike: Mask, ranks: Int64s, most: int, rows: Callable[[Int64s], list[Any]]
) -> Int64s:
    level = np.cumsum(~alike) - 1
    first = ranks[~alike][level] < most
    tied = np.flatnonzero((alike | np.append(alike[1:], False)) & first)
    contents = map(content, rows(order[tied]))
    pairs = zip(level[tied].tolist(), contents, range(len(tied)), strict=True)
    by_bytes: Int64s = order.copy()
    by_bytes[tied] = order[tied[[number for _, _, number in sorted(pairs)]]]
    return by_bytes


def ranks_of(groups: Int64s) -> Int64s:
    """The rank of each record in its group, from 0; the records of a group lie together."""
    count = len(groups)
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(count) - np.repeat(begins, np.diff(begins, append=count))


def listed(values: pl.Series, groups: Int64s, count: int) -> pl.Series:
    """A list for each of so many groups, of values without nulls in the order of their groups."""
    empty = np.setdiff1d(np.arange(count), groups)
    where = pl.Series(np.arange(len(values)), dtype=pl.Int64)
    if len(empty):  # a null, which is dropped again
        where = pl.concat([where, pl.Series([None] * len(empty), dtype=pl.Int64)])
        values = values.extend_constant(None, 1).gather(where)
    numbers = pl.Series(_GROUP, np.concatenate([groups, empty]), pl.Int64)
    grouped = pl.DataFrame([numbers, values.alias(_ENTRY)]).group_by(_GROUP, maintain_order=True)
    lists = grouped.agg(pl.col(_ENTRY).drop_nulls())
    return (lists.sort(_GROUP) if len(empty) else lists)[_ENTRY]


def _column(name: str, values: list[Any], kind: str) -> pl.Series:
    own = _VALUES[kind]
    if any(type(value) is not own for value in values):
        raise Inexact
    if own is float and not all(map(isfinite, values)):
        raise Inexact
    try:
        return pl.Series(name, values, dtype(kind), strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise Inexact from None


def _records(rows: list[Any], like: Any) -> pl.Series:
    """Records as a column that returns them bit by bit."""
    try:
        column = pl.Series(ROW, rows, like, strict=True)
        same = as_it_stands(column.to_list()) == as_it_stands(rows)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise Inexact from None
    if not same or not isinstance(column.dtype, pl.Struct) or _has_nulls(column.dtype):
        raise Inexact
    return column


def _has_nulls(kind: Any) -> bool:
    """Whether the type of a part of a record is unknown, as all of its values are null."""
    if isinstance(kind, pl.Struct):
        return any(_has_nulls(each.dtype) for each in kind.fields)
    return _has_nulls(kind.inner) if isinstance(kind, pl.List) else bool(kind == pl.Null)


def _most_bytes(column: pl.Series) -> int:
    """The most that a value takes in rows, with its name."""
    own = len(column.name) * 4 + _NAME_BYTES
    if isinstance(column.dtype, pl.Struct):
        return own + sum(map(_most_bytes, column.struct.unnest().get_columns()))
    if isinstance(column.dtype, pl.List):
        longest = int(column.list.len().to_numpy().max(initial=0))
        return own + longest * _most_bytes(column.explode())
    if column.dtype == pl.String:
        return (
            own + _NAME_BYTES + int(column.str.len_bytes().fill_null(0).to_numpy().max(initial=0))
        )
    return own + _NUMBER_BYTES
