"""The column form of an enrichment with a table that a worker holds whole: the rows are one column
of structs, of which each record gets one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.key_columns import KeyColumns
from millwheel.core.columns.stateless.stages import Passed, part_of
from millwheel.core.formats.codec import decode_value
from millwheel.core.lazy_polars import dtype, kind_of, pl
from millwheel.core.model.keys import key_from_bytes
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.work import EnrichSpec, Missing

_INT64 = 2**63  # Fixed: integers from here on are not an int64
_KINDS: Mapping[type, str] = {int: "int", float: "float", str: "str", bool: "bool"}
_KEY_KINDS = ("int", "str")


class TableColumns:
    """The rows of a table as a column of structs, and their positions in it by their keys."""

    def __init__(self, rows: pl.Series, keys: Sequence[Any]) -> None:
        self._rows = rows
        self._positions = {key: position for position, key in enumerate(keys)}

    def positions(self, keys: pl.Series) -> pl.Series:
        """The positions of the rows of some keys; null for a key without one."""
        # A lookup in a dict of Python costs about as much as in a join, and nothing for the rest of
        # the table.
        return pl.Series(list(map(self._positions.get, key_list(keys))), dtype=pl.UInt32)

    def at(self, positions: pl.Series) -> pl.Series:
        """The rows at some positions; null for none."""
        return self._rows.gather(positions)


def table_columns(rows: Mapping[bytes, bytes]) -> TableColumns | None:
    """The columns of encoded rows by the bytes of their keys. None where rows differ in their
    fields, in the order of these or in their types, or have values that no column holds."""
    values = list(map(decode_value, rows.values()))
    if not values or type(values[0]) is not dict or not values[0]:
        return None
    names = list(values[0])
    if any(type(row) is not dict or list(row) != names for row in values):
        return None
    columns = {name: [row[name] for row in values] for name in names}
    kinds = {name: _kind_of(column) for name, column in columns.items()}
    if not all(kinds.values()):
        return None
    # One by one: in structs Polars takes floats at the ends of their range for overflows.
    series = [pl.Series(name, column, dtype(kinds[name])) for name, column in columns.items()]
    return TableColumns(pl.DataFrame(series).to_struct(), list(map(key_from_bytes, rows)))


def _kind_of(values: Sequence[Any]) -> str:
    """The type of a column that has these values and no others; "" for none."""
    kinds = {type(value) for value in values} - {type(None)}
    kind = kinds.pop() if kinds else str
    if kinds or kind not in _KINDS:
        return ""
    present = [value for value in values if value is not None]
    if kind is int and not all(-_INT64 <= value < _INT64 for value in present):
        return ""
    if kind is float and not all(map(isfinite, present)):
        return ""
    return _KINDS[kind]


class EnrichColumns:
    """Adds rows to batches in columns. ``most_bytes`` is that of a key."""

    def __init__(
        self,
        work: EnrichSpec,
        outputs: Sequence[str],
        compile_expression: Callable[[str], Any],
        most_bytes: int,
    ) -> None:
        assert work.broadcast is not None
        assert work.broadcast.by is not None
        self._work = work
        self._outputs = tuple(outputs)
        self._by = work.broadcast.by
        self._computed = None if self._by.plain else KeyColumns(self._by, compile_expression)
        self._most_chars = (most_bytes - 5) // 4
        """The most characters of a text that cannot be too long for a key."""

    def passed(self, batch: ColumnBatch, table: TableColumns) -> Passed | None:
        """The results of a batch; None where it goes by rows."""
        keys = self._keys(batch)
        if keys is None:
            return None
        positions, missing = table.positions(keys), self._work.missing
        has_row = positions.is_not_null().to_numpy()
        if missing is Missing.DEAD_LETTER and not has_row.all():
            return None
        rows = table.at(positions).alias(self._work.name)
        frame, indexes = batch.frame.with_columns(rows), np.arange(len(batch))
        mask = has_row if missing is Missing.DROP else np.ones(len(batch), np.bool_)
        parts = [part_of(batch, stream, indexes, frame, mask) for stream in self._outputs]
        unmatched = len(batch) - int(np.count_nonzero(mask))
        return Passed([each for each in parts if len(each)], unmatched, np.array([], np.int64))

    def _keys(self, batch: ColumnBatch) -> pl.Series | None:
        if self._by.kind is KeyKind.RECORD:
            return batch.keys
        parts = self._plain(batch.frame) if self._computed is None else None
        if self._computed is not None:
            parts = self._computed.parts(batch.frame)
        if not parts or not all(map(self._fits, parts)):
            return None
        return key_column(parts)

    def _plain(self, frame: pl.DataFrame) -> list[pl.Series] | None:
        names = self._by.names
        if len(set(names)) < len(names) or not set(names) <= set(frame.columns):
            return None
        return [frame[name] for name in names]

    def _fits(self, part: pl.Series) -> bool:
        """Whether all values can be a part of a key."""
        if kind_of(part.dtype) not in _KEY_KINDS or part.null_count():
            return False
        if part.dtype != pl.String or not len(part):
            return True
        longest = part.str.len_chars().max()
        return isinstance(longest, int) and longest * len(self._by.names) <= self._most_chars
