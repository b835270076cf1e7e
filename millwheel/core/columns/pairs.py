"""The records of a join as columns: how they are kept while their windows are open, and the pairs
of closed windows.

Kept records have a key, a window, the number of their input, a time, and their value in one of two
forms: as a struct of columns, one for each input, or encoded. Where both meet, columns are encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from math import isfinite, prod
from types import NoneType
from typing import Any, Literal

import numpy as np

from millwheel.core.columns.arrays import Times, assign_array, stated_array
from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.few_groups import Groups, frame_of
from millwheel.core.columns.groups_frame import END, KEY, START, key_parts
from millwheel.core.columns.segments import ColumnarSegments, MergesGroups
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.model.keys import Key, key_bytes
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import JoinKind, JoinSpec
from millwheel.core.windows.lateness import is_complete, still_open
from millwheel.core.windows.windows import OfInput, Tumbling, Window
from millwheel.errors import RecordError

INPUT, AT, LAST, VALUE = "input", "at", "last", "value"
_COUNT = "count"
SIDES = ("0", "1")
"""The columns of the values of either input."""
_KINDS = {int: "int", float: "float", str: "str", bool: "bool"}
_ARRAY32 = b"\xdd"  # Fixed: how msgpack begins an array with a length of four bytes
_FAR = 2**62  # Fixed: beyond, the bounds of a window may not fit into 64 bits
_HOW: Mapping[JoinKind, Literal["inner", "left", "right", "full"]] = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.RIGHT: "right",
    JoinKind.OUTER: "full",
}


def encoded_schema() -> dict[str, Any]:
    """The columns of records whose keys and values are encoded."""
    return {
        KEY: pl.Binary,
        START: pl.Int64,
        END: pl.Int64,
        INPUT: pl.Int8,
        AT: pl.Int64,
        VALUE: pl.Binary,
    }


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """Two inputs whose records are kept together: the ``streams`` with their declared ``fields``
    (none: unknown), and the names under which the parts of a key are in the results."""

    streams: tuple[str, str]
    fields: tuple[Mapping[str, str], Mapping[str, str]]
    key_names: tuple[str, ...]

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Concatenate segments: they are in the order of arrival."""
        types = {
            (name, str(frame.schema[name]))
            for frame in groups
            for name in (KEY, *SIDES)
            if name in frame.schema
        }
        if len(types) > len({name for name, _ in types}) or any(
            VALUE in frame.schema for frame in groups
        ):
            groups = list(map(encoded, groups))
        return pl.concat(groups, how="diagonal")


@dataclass(frozen=True, slots=True)
class Pairing(KeptInputs):
    """The inputs of a join in windows."""

    kind: JoinKind
    window: Tumbling | OfInput

    def bounds(self, timestamps: Times, values: pl.DataFrame) -> tuple[Times, Times] | None:
        """Start and end of the windows of records; None for times that no column of bounds can
        hold, and records that name no window. ``values`` have the fields of which the type is
        known."""
        if isinstance(self.window, OfInput):
            stated = stated_array(self.window, values)
            return None if stated is None else (stated.starts, stated.ends)
        if len(timestamps) and not -_FAR < timestamps.min() <= timestamps.max() < _FAR:
            return None
        assigned = assign_array(self.window, timestamps)
        return assigned.starts, assigned.ends

    def named(self, values: Sequence[bytes]) -> pl.DataFrame:
        """The fields of encoded values that name their windows; none where a value names none."""
        if not isinstance(self.window, OfInput):
            return pl.DataFrame()
        try:
            windows = [self.window.window_of(decode_value(value)) for value in values]
        except RecordError:
            return pl.DataFrame()
        names = self.window.start, self.window.end
        return pl.DataFrame(windows, dict.fromkeys(names, pl.Int64), orient="row")

    def taken(self, batch: ColumnBatch) -> pl.DataFrame | None:
        """The records of one input, to be kept as columns; None where they must be encoded."""
        bounds, parts = self.bounds(batch.timestamps, batch.frame), key_parts(batch.keys)
        keys_fit = batch.keys.dtype in (pl.Int64, pl.String) or isinstance(
            batch.keys.dtype, pl.Struct
        )
        if (
            bounds is None
            or not keys_fit
            or len(parts) != len(self.key_names)
            or not batch.frame.width
        ):
            return None
        named = [part.alias(name) for part, name in zip(parts, self.key_names, strict=True)]
        number = self.streams.index(batch.stream)
        return pl.DataFrame(
            [
                key_column(named).alias(KEY),
                pl.Series(START, bounds[0]),
                pl.Series(END, bounds[1]),
                pl.Series(INPUT, [number], pl.Int8).new_from_index(0, len(batch)),
                pl.Series(AT, batch.timestamps),
                batch.frame.to_struct(SIDES[number]),
            ]
        )

    def pairs(self, closed: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """The results of windows that have closed, those of a key in the order of their windows.
        ``closed`` are their records, in parts that lie one behind the other. None where they are
        made record by record."""
        kinds = self._kinds(closed)
        fields = [*self.key_names, "window_start", "window_end", *self.streams]
        # of two fields with one name a record keeps the last
        if kinds is None or len(set(fields)) < len(fields):
            return None
        names = [f"k{index}" for index in range(len(self.key_names))]
        left, right = (
            pl.concat([_side(part, number, names, kind) for part in closed])
            for number, kind in enumerate(kinds)
        )
        # The pairs come in the order of the left records; those without a left record come last.
        on, how = [*names, START, END], _HOW[self.kind]
        pairs = by_end(left).join(right, on=on, how=how, maintain_order="left_right", coalesce=True)
        if self.kind in (JoinKind.RIGHT, JoinKind.OUTER):
            pairs = by_end(pairs)
        return pairs.select(
            *(
                pl.col(name).alias(key_name)
                for name, key_name in zip(names, self.key_names, strict=True)
            ),
            pl.col(START).alias("window_start"),
            pl.col(END).alias("window_end"),
            *(pl.col(side).alias(stream) for side, stream in zip(SIDES, self.streams, strict=True)),
        )

    def heavy(
        self,
        closed: Sequence[pl.DataFrame],
        most: int,
        bytes_of_result: int,
        waiting: AbstractSet[Key],
    ) -> pl.DataFrame | None:
        """The keys with the most results, without which the results of the others have at most so
        many bytes, and the keys that are ``waiting``: the results of a key keep their order. None
        where there are no such keys, or where no columns make results."""
        if self._kinds(closed) is None:
            return None
        heavy = self._heaviest(closed, most, bytes_of_result)
        heavy_keys = [] if heavy is None else [heavy.select(KEY)]
        if waiting:
            keys = pl.concat([part.select(KEY) for part in closed]).unique()
            heavy_keys.append(keys.filter([key in waiting for key in key_list(keys[KEY])]))
        groups = pl.concat(heavy_keys).unique() if heavy_keys else None
        return None if groups is None or groups.is_empty() else groups

    def _heaviest(
        self, closed: Sequence[pl.DataFrame], most: int, bytes_of_result: int
    ) -> pl.DataFrame | None:
        """The same by the windows of keys, among those that do not wait."""
        counts, bytes_of_each = [], bytes_of_result
        for side, name in enumerate(SIDES):
            parts = [part for part in closed if name in part.schema]
            count = sum(int((part[INPUT] == side).sum()) for part in parts)
            counts.append(count)
            bytes_of_each += sum(int(part[name].estimated_size()) for part in parts) // max(
                count, 1
            )
        if prod(counts) * bytes_of_each <= most:
            return None
        groups = [KEY, START, END]
        numbers = pl.concat([part.select(*groups, INPUT) for part in closed]).group_by(groups)
        rights = pl.col(INPUT).cast(pl.Int64).sum()
        by_group = numbers.agg(((pl.len() - rights) * rights).alias(_COUNT))
        total = int(by_group[_COUNT].sum())
        if total * bytes_of_each <= most:
            return None
        by_group = by_group.sort(_COUNT, descending=True)
        without = (total - by_group[_COUNT].cum_sum()) * bytes_of_each
        return by_group.head(int((without > most).sum()) + 1).select(groups)

    def keys_of(self, pairs: pl.DataFrame) -> pl.Series:
        """The keys of pairs."""
        return key_column([pairs[name] for name in self.key_names])

    def sides_of(self, values: Sequence[Sequence[bytes]]) -> list[pl.Series] | None:
        """The encoded records of both inputs as columns; None where they have none, or where the
        results have not."""
        fields = [*self.key_names, "window_start", "window_end", *self.streams]
        if len(set(fields)) < len(fields) or not all(self.fields):
            return None
        sides = []
        for own, declared in zip(values, self.fields, strict=True):
            frame = decoded(own, declared)
            # more fields than are declared have the types that their values have
            frame = decoded(own, {}) if frame is None else frame
            if frame is None:
                return None
            sides.append(frame.to_struct())
        return sides

    def some_of(
        self, key: Key, window: Window, sides: Sequence[pl.Series], numbers: range
    ) -> pl.DataFrame | None:
        """The pairs of one window that have these numbers, in the order of each left record with
        all right ones; None for keys that no columns of results hold."""
        parts = key if isinstance(key, tuple) else (key,)
        fits = all(type(part) is str or (type(part) is int and abs(part) < _FAR) for part in parts)
        if len(parts) != len(self.key_names) or not fits:
            return None
        left, right = np.divmod(np.arange(numbers.start, numbers.stop), len(sides[1]))
        fields = zip(self.key_names, parts, strict=True)
        bounds = zip(("window_start", "window_end"), window, strict=True)
        return pl.DataFrame(
            [
                *(
                    pl.Series(name, [value]).new_from_index(0, len(numbers))
                    for name, value in chain(fields, bounds)
                ),
                sides[0].gather(left).alias(self.streams[0]),
                sides[1].gather(right).alias(self.streams[1]),
            ]
        )

    def _kinds(self, closed: Sequence[pl.DataFrame]) -> list[Any] | None:
        """The types of the records of either input, also if it has no record; None where records
        are encoded, or where their types differ."""
        if (
            any(VALUE in part.schema for part in closed)
            or len({part.schema[KEY] for part in closed}) > 1
        ):
            return None
        kinds = []
        for side, fields in zip(SIDES, self.fields, strict=True):
            types = {
                str(part.schema[side]): part.schema[side] for part in closed if side in part.schema
            }
            if len(types) > 1 or not (types or fields or self.kind is JoinKind.INNER):
                return None
            declared = (
                pl.Struct({name: dtype(kind) for name, kind in fields.items()})
                if fields
                else pl.Null
            )
            kinds.append(next(iter(types.values()), declared))
        return kinds


def _side(part: pl.DataFrame, number: int, names: Sequence[str], kind: Any) -> pl.DataFrame:
    """The keys, windows and records of one input."""
    side, other = SIDES[number], SIDES[1 - number]
    if side not in part.schema:
        part = part.clear().with_columns(pl.lit(None, kind).alias(side))
    elif other in part.schema:
        part = part.filter(pl.col(INPUT) == number)
    keys = (key.alias(name) for key, name in zip(key_parts(part[KEY]), names, strict=True))
    return pl.DataFrame([*keys, part[START], part[END], part[side]])


def by_end(groups: pl.DataFrame) -> pl.DataFrame:
    """Records in the order in which their windows end, those of a window as they come."""
    return groups if groups[END].is_sorted() else groups.sort(END, maintain_order=True)


class JoinWindows(ColumnarSegments):
    """The open windows of a join. The records of a segment lie in the order in which their windows
    end, and those of a window in the order of arrival. So closed windows are cut off, without a
    copy, and the others are not touched."""

    apart = 1

    def __init__(self, plan: MergesGroups, fan: int) -> None:
        super().__init__(plan, fan=fan)

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        super().restore(number, level, by_end(groups), watermark)

    def take_closed(self, watermark: int) -> list[pl.DataFrame]:
        """The records of windows that end at or before ``watermark``, which are open no longer:
        those of each segment, in the order of arrival."""
        closed = []
        for segment in [
            segment for segment in self._segments if is_complete(segment.first, watermark)
        ]:
            groups = segment.groups
            count = groups.height - int(still_open(groups[END], watermark).sum())
            closed.append(groups.head(count))
            self._keep(segment, groups.slice(count))
        return closed

    def _append(self, groups: Groups, level: int, fired: int | None = None) -> None:
        super()._append(by_end(frame_of(groups)), level, fired)


def pairing_of(
    spec: ComputationSpec, pipeline: PipelineSpec, window: Tumbling | OfInput
) -> Pairing:
    """How a join in tumbling windows pairs columns."""
    left, right = spec.inputs
    streams = [pipeline.stream(each.stream) for each in spec.inputs]
    fields = tuple({} if stream.source is None else stream.fields for stream in streams)
    return Pairing(
        (left.stream, right.stream),
        (fields[0], fields[1]),
        left.key.shown,  # none for the key of everything, whose records are encoded
        spec.work_as(JoinSpec).kind,
        window,
    )


def encoded(records: pl.DataFrame) -> pl.DataFrame:
    """Records with their keys and values encoded."""
    if VALUE in records.schema:
        return records
    sides = [records[side].to_list() if side in records.schema else [] for side in SIDES]
    numbers = records[INPUT].to_list()
    values = [encode_value(sides[number][row]) for row, number in enumerate(numbers)]
    keys = list(map(key_bytes, key_list(records[KEY])))
    same = [records[name] for name in records.columns if name not in (KEY, *SIDES)]
    return pl.DataFrame(
        [pl.Series(KEY, keys, pl.Binary), *same, pl.Series(VALUE, values, pl.Binary)]
    )


def decoded(values: Sequence[bytes], fields: Mapping[str, str]) -> pl.DataFrame | None:
    """Encoded values as columns of these fields (none: of all their fields), which have the same
    bytes when they are encoded again; None where there are no such columns."""
    rows = decode_value(b"".join((_ARRAY32, len(values).to_bytes(4, "big"), *values)))
    names = tuple(fields or rows[0]) if type(rows[0]) is dict else ()
    if not names or any(map(is_pattern, names)):
        return None
    if set(map(type, rows)) != {dict} or set(map(tuple, rows)) != {names}:
        return None
    columns = []
    for name in names:
        column = [row[name] for row in rows]
        types = set(map(type, column)) - {NoneType}
        kind = _KINDS.get(next(iter(types)), "") if len(types) == 1 else ""
        kind = fields.get(name, "") if not types else kind
        if len(types) > 1 or not kind or (fields and kind != fields[name]):
            return None
        if kind == "float" and not all(isfinite(each) for each in column if each is not None):
            return None
        try:
            columns.append(pl.Series(name, column, dtype(kind)))
        except (OverflowError, TypeError):  # beyond 64 bits
            return None
    return pl.DataFrame(columns)
