"""Records that columns keep for the keys of a shard: the checks on them, and their form.

Only what the columns hold exactly: fields of declared or inferred kinds, all alike, and floats that
are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import (
    ColumnBatch,
    Int64s,
    fits_key,
)
from millwheel.core.columns.clean import clean_rows, is_pattern
from millwheel.core.columns.groups_frame import KEY, key_parts
from millwheel.core.columns.state.columns_to_rows import keys_like
from millwheel.core.lazy_polars import dtype, kind_of, pl
from millwheel.core.model.keys import Key
from millwheel.core.windows.panes import RETRACTION_FIELD

AT, ROW = "at", "row"
_INT64 = 2**63  # Fixed: integers from here on are not an int64
_TYPES = {"int": int, "float": float, "str": str, "bool": bool}
FLAT_KINDS = frozenset(_TYPES)
"""The kinds of fields that may be kept in columns."""
_VALUE_BYTES = 9  # Fixed: the most that msgpack takes for a number, or for the size of a text
_ROW_BYTES = 100
"""More bytes than msgpack takes for the rest of an entry: its time, and its lists."""
Mask = npt.NDArray[np.bool_]


class PlanOfKeys(Protocol):
    """The part of a plan that is used here: the fields that it reads, and the types of keys."""

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def key_types(self) -> Mapping[str, Any]: ...

    @property
    def key_dtype(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """Records with these ``fields``. ``plan`` has their keys, and the fields that are read."""

    plan: PlanOfKeys
    fields: Mapping[str, str]
    most: int
    """The most bytes of an entry of the row form."""

    def clean(self, batch: ColumnBatch, like: Any, most: int) -> Mask:
        """Which records columns can hold, each with at most so many bytes. Raises Inexact if they
        can hold none. ``like``: the type of the held rows (None: there are none)."""
        frame = batch.frame
        kinds = {name: kind_of(kind) for name, kind in frame.schema.items()}
        own = pl.Struct(dict(frame.schema))
        if not self.holds(own, batch.keys.dtype) or (like is not None and own != like):
            raise Inexact
        floats = {name: kind for name, kind in kinds.items() if kind == "float"}
        finite, there = clean_rows(frame, floats, True), clean_rows(frame, dict(self.plan.kinds))
        if finite is None or there is None:
            raise Inexact
        mask = finite & there
        for part in key_parts(batch.keys):
            mask &= part.is_not_null().to_numpy()
        mask &= _sizes(frame) <= most
        return mask

    def in_columns(
        self, stream: str, keys: Sequence[Key], values: Sequence[Any], times: Sequence[int]
    ) -> tuple[ColumnBatch, Mask]:
        """The records that columns can hold, of those that have come in rows, and a mask of
        these."""
        types = {name: _TYPES[kind] for name, kind in self.fields.items()}
        names, kinds = list(types), [*self.plan.key_types.values()]
        mask = np.array(
            [
                type(value) is dict
                and list(value) == names
                and all(map(_is_of, value.values(), types.values()))
                and _fits(key, kinds)
                for key, value in zip(keys, values, strict=True)
            ],
            np.bool_,
        )
        numbers = np.flatnonzero(mask).tolist()
        schema = {name: dtype(kind) for name, kind in self.fields.items()}
        try:
            frame = pl.DataFrame([values[number] for number in numbers], schema)
            own = keys_like([keys[number] for number in numbers], self.plan.key_dtype)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise Inexact from None
        at = np.array(times, np.int64)[mask]
        return ColumnBatch(stream, np.array([], np.int64), at, own, frame), mask

    def taken(self, batch: ColumnBatch) -> pl.DataFrame:
        """Records that fit, in their kept form."""
        rows = batch.frame.to_struct(ROW)
        return pl.DataFrame([batch.keys.alias(KEY), pl.Series(AT, batch.timestamps), rows])

    def holds(self, rows: Any, keys: Any) -> bool:
        """Whether rows and keys of these types may be held: the rows have all fields, perhaps
        more."""
        kinds = {field.name: kind_of(field.dtype) for field in rows.fields}
        has_fields = self.fields.items() <= kinds.items() and {*kinds.values()} <= FLAT_KINDS
        odd = RETRACTION_FIELD in kinds or any(map(is_pattern, kinds))
        return bool(has_fields and not odd and keys == self.plan.key_dtype)


def _sizes(frame: pl.DataFrame) -> Int64s:
    """At least as many bytes as each record takes in rows, with the values of the orders."""
    sizes = np.full(frame.height, _ROW_BYTES + sum(map(len, frame.columns)) * 4, np.int64)
    for column in frame.get_columns():
        if column.dtype == pl.String:
            sizes += 2 * column.str.len_bytes().fill_null(0).to_numpy().astype(np.int64)
        sizes += 2 * _VALUE_BYTES
    return sizes


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a column of a kind can have this value."""
    if type(value) is not kind:
        return value is None
    if kind is int:
        return bool(-_INT64 <= value < _INT64)
    return kind is not float or isfinite(value)


def _fits(key: Key, kinds: Sequence[Any]) -> bool:
    parts = key if type(key) is tuple else (key,)
    return len(parts) == len(kinds) and all(map(fits_key, parts, kinds))
