"""Columns made of records that a source reads one by one, for those consumers that take columns.

Some consumers need whole records, such as a callback or a step, and some formats have no columns.
The records are read once; the few fields that windows look at become columns in one call, and each
record is grouped there with its bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.forms.sources import MadeColumns
from millwheel.core.expressions.inner_fields import (
    as_records,
    inner_name,
    is_inner,
    path_of,
)
from millwheel.core.expressions.terms import RECORD
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch, Values, taken
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.delivery.consumer_keys import Dividing, Keyless
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.timestamps import plain_column

KINDS: Mapping[type, str] = {int: "int", float: "float", str: "str", bool: "bool"}
_ID_TYPES = (int, str)
_MOST_MISSES = 8
"""Reads in a row without columns, after which none are made any more."""
_NONE = type(None)


class BesideColumns:
    """The maker of columns from the reads of one stream of at least ``least`` records. ``fields``
    are the declared types, ``taking`` has the consumers that get columns, ``others`` the rest, of
    which some may get columns from ``beside``."""

    def __init__(
        self,
        made_columns: MadeColumns,
        fields: Mapping[str, str],
        least: int,
        taking: Fanout,
        others: Fanout,
        beside: BesideColumns | None = None,
    ) -> None:
        self._taking = taking
        self._others = others
        self._beside = beside
        self._names = sorted(made_columns.needs)
        self._needed = made_columns.needs
        self._whole = made_columns.whole
        self._accepts: Callable[[Mapping[str, str]], bool] = made_columns.accepts
        self._fields = fields
        self._least = max(least, 1)
        self._misses = 0

    def split(
        self, batch: Batch, late: Collection[int], epochs: Dividing
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]] | None:
        """See :meth:`.routing.Fanout.split`. None where all consumers get rows."""
        columns = self.columns(batch)
        rest = None if self._beside is None else self._beside.split(batch, late, epochs)
        if columns is None and rest is None:
            return None
        if columns is None:
            taking, refused = self._taking.split(batch, batch.values, late, epochs)
        else:
            mask = np.isin(np.arange(len(batch)), list(late)) if late else None
            taking, refused = self._taking.split_columns(columns, mask, epochs)
        others, more = rest or self._others.split(batch, batch.values, late, epochs)
        return [*taking, *others], [*refused, *more]

    def columns(self, batch: Batch) -> ColumnBatch | None:
        """None where records are few, or any of them must be looked at by itself: it lacks a field,
        or has one of another type."""
        if (
            len(batch) < self._least
            or self._misses >= _MOST_MISSES
            or type(batch.values[0]) is not dict
        ):
            return None
        try:
            columns = self._columns(batch)
        # a number or text that does not fit
        except (pl.exceptions.PolarsError, OverflowError, TypeError, ValueError):
            columns = None
        self._misses = self._misses + 1 if columns is None else 0
        return columns

    def _columns(self, batch: Batch) -> ColumnBatch | None:
        kinds: dict[str, str] = {}
        series = self._series(batch.values, kinds)
        if not series or any(each is None for each in series) or not self._accepts(kinds):
            return None
        ids = None if batch.ids is None else _ids(batch.ids)
        if batch.ids is not None and ids is None:
            return None
        seqs, times = np.array(batch.held_seqs, np.int64), np.array(batch.held_timestamps, np.int64)
        # all of one partition, which is their key; those with ids have consumers with own keys
        keys = pl.Series("key", [str(batch.keys[0])], pl.String).new_from_index(0, len(batch))
        frame = pl.DataFrame(as_records(series))
        return ColumnBatch(batch.stream, seqs, times, keys, frame, batch.born_us, ids)

    def _series(self, values: Sequence[Any], kinds: dict[str, str]) -> list[Any]:
        """The columns, None for one that cannot be made; ``kinds`` gets their types."""
        if not self._whole:
            return [self._one(values, name, kinds) for name in self._names]
        names = _fields_of(values, self._fields)
        return [
            _record(column, [name], kinds, self._needed)
            if _are_records(column := plain_column(values, name))
            else self._one(values, name, kinds)
            for name in names
        ]

    def _one(self, values: Sequence[Any], name: str, kinds: dict[str, str]) -> pl.Series | None:
        read = values if isinstance(values, Values) else None
        read = None if is_inner(name) else read
        column = _column(values, name)
        if column is None:
            return None
        types = read.kinds(name) if read is not None else None
        if self._whole and name not in self._needed:
            types = (set(map(type, column)) if types is None else types) - {_NONE}
        kind = kind_of_all(column, types)
        if not kind or self._fields.get(name, kind) != kind:
            return None
        numbers = read.numbers(name) if read is not None and kind == "int" else None
        kinds[name] = kind
        return _finite(pl.Series(name, column if numbers is None else numbers, dtype(kind)))


def _are_records(column: Sequence[Any] | None) -> bool:
    return bool(column) and set(map(type, column or ())) == {dict}


def _record(
    column: Sequence[Any] | None, path: list[str], kinds: dict[str, str], needed: Collection[str]
) -> pl.Series | None:
    """A column of records with the same fields, in the same order; None where they are not."""
    names = _fields_of(column or (), ())
    parts = []
    for name in names:
        inner = taken(column or (), name)
        own = [*path, name]
        if _are_records(inner):
            parts.append(_record(inner, own, kinds, needed))
            continue
        types = set(map(type, inner or ()))
        whole = inner_name(*own)
        kind = kind_of_all(inner or (), types if whole in needed else types - {_NONE})
        kinds[whole] = kind
        parts.append(_finite(pl.Series(name, inner, dtype(kind))) if kind else None)
    kinds[inner_name(*path) if path[1:] else path[0]] = RECORD
    if not parts or any(part is None for part in parts):
        return None
    return pl.DataFrame(parts).to_struct(path[-1])


def _finite(column: pl.Series) -> pl.Series | None:
    if column.dtype == pl.Float64 and not np.isfinite(column.drop_nulls().to_numpy()).all():
        return None
    return column


def _fields_of(values: Sequence[Any], declared: Collection[str]) -> Sequence[str]:
    """The fields of all records, in the order in which records that are passed on have them; none
    where they differ, be it in their order, or where columns cannot have one."""
    alike = set(map(tuple, values))
    names = alike.pop()
    refused = any(is_pattern(name) or is_inner(name) for name in names)
    if alike or refused or RETRACTION_FIELD in names:
        return ()
    if not declared:
        return names
    return [*(name for name in declared if name in names), *sorted({*names} - {*declared})]


def _column(values: Sequence[Any], name: str) -> Sequence[Any] | None:
    """A field of all values, perhaps one within others; None where one lacks it."""
    outer, *inner = path_of(name)
    column = plain_column(values, outer)
    for each in inner:
        column = column and taken(column, each)
    return column


def kind_of_all(column: Sequence[Any], types: Collection[type] | None = None) -> str:
    """The one type of all values; "" if there is none."""
    types = set(map(type, column)) if types is None else types
    return KINDS.get(next(iter(types)), "") if len(types) == 1 else ""


def _ids(ids: Sequence[Any]) -> pl.Series | None:
    types = set(map(type, ids)) - {_NONE}
    if len(types) != 1 or not types <= set(_ID_TYPES):
        return None
    return pl.Series("id", ids, dtype(KINDS[types.pop()]))
