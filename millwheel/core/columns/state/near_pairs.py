"""The join of records that lie near each other in time, or come at any time, in columns: the kept
records of either stream, and their pairs with new records.

The window of a kept record begins with the first time of a partner, and ends once the watermark has
passed the last one. ``last`` is the last time of a partner. Values are a struct of columns, or
encoded (:mod:`..pairs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.arrays import Times
from millwheel.core.columns.batch import ColumnBatch, Int64s, key_column, key_list
from millwheel.core.columns.clean import is_clean, is_pattern
from millwheel.core.columns.groups_frame import END, KEY, START, key_parts
from millwheel.core.columns.pairs import (
    AT,
    INPUT,
    LAST,
    SIDES,
    VALUE,
    JoinWindows,
    KeptInputs,
    decoded,
    encoded,
    encoded_schema,
)
from millwheel.core.columns.segments import LastingSegments
from millwheel.core.columns.state.columns_to_rows import is_among
from millwheel.core.expressions.inner_fields import inner_name
from millwheel.core.expressions.terms import Term
from millwheel.core.lazy_polars import dtype, kind_of, pl
from millwheel.core.model.keys import Key, key_bytes
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import IntervalJoinSpec, JoinKind, RegularJoinSpec

NUMBER = "number"
"""The number of a new record in the bundle; -1 for a kept one."""
_CODE, _TIME = "code", "time"
MOST_PAIR_BYTES = 256 << 20
"""The most bytes of pairs that one operation makes."""
_FEW_PAIRS = 50_000
"""A number of pairs that is always allowed."""
FAR_US = 2**61  # Fixed: the sum of a time and a distance below this fits into 64 bits


class TooManyPairs(Exception):
    """Too many pairs for one step, which makes about this ``share`` of them. ``keys`` have the most
    pairs, and those of the others are few enough."""

    def __init__(self, keys: set[Key], share: float) -> None:
        super().__init__(f"{len(keys)} keys have too many pairs for one step")
        self.keys, self.share = keys, share


@dataclass(frozen=True, slots=True)
class Bounds:
    """When the partners of a record of one stream come: at most so many µs before and after it
    (None: any), and between times that are computed from its fields: ``reads`` are the columns that
    must hold no nulls for that, with their kinds."""

    before_us: int | None
    after_us: int | None
    froms: tuple[Term, ...] = ()
    untils: tuple[Term, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NearPairing(KeptInputs):
    """How records are paired; with the ``bounds`` of either stream. ``lasting``: no record is
    ever removed. Only then does the result have other records than pairs."""

    bounds: tuple[Bounds, Bounds]
    lasting: bool = False
    kind: JoinKind = JoinKind.INNER

    def taken(self, batch: ColumnBatch) -> pl.DataFrame:
        """The records of one input, as they are kept. Raises Inexact."""
        side, parts = self.streams.index(batch.stream), key_parts(batch.keys)
        fields = self.fields[side]
        schema = {name: kind_of(kind) for name, kind in batch.frame.schema.items()}
        declared = (
            schema == dict(fields) if fields else bool(schema) and not any(map(is_pattern, schema))
        )
        if not declared or len(parts) != len(self.key_names):
            raise Inexact
        if any(kind_of(part.dtype) not in ("int", "str") or part.null_count() for part in parts):
            raise Inexact
        values = batch.frame.select(list(fields or schema))
        firsts, lasts = self._partners(side, batch.timestamps, values)
        return self._frame(side, parts, batch.timestamps, firsts, lasts, values)

    def _frame(
        self,
        side: int,
        parts: Sequence[pl.Series],
        at: Int64s,
        firsts: Times,
        lasts: Times,
        values: pl.DataFrame,
    ) -> pl.DataFrame:
        ends = np.minimum(np.maximum(at, lasts), LAST_TIME)
        named = [part.alias(name) for part, name in zip(parts, self.key_names, strict=True)]
        return pl.DataFrame(
            [
                key_column(named).alias(KEY),
                pl.Series(START, firsts),
                pl.Series(END, ends + 1),
                pl.Series(INPUT, [side], pl.Int8).new_from_index(0, len(at)),
                pl.Series(AT, at),
                pl.Series(LAST, lasts),
                values.to_struct(SIDES[side]),
            ]
        )

    def encoded(self, rows: Sequence[tuple[int, Key, int, int, int, bytes]]) -> pl.DataFrame:
        """Single records as they are kept: the number of the input, the key, the time, the first
        and the last time of a partner, and the encoded value."""
        schema = near_encoded_schema()
        columns: list[Any] = list(zip(*rows, strict=True)) or [[]] * 6
        sides, keys, at, firsts, lasts, values = columns
        starts = [max(first, MIN_TIME) for first in firsts]
        until = [min(last, MAX_TIME) for last in lasts]
        ends = [min(max(pair), LAST_TIME) + 1 for pair in zip(at, until, strict=True)]
        whole = (list(map(key_bytes, keys)), starts, ends, sides, at, until, values)
        return pl.DataFrame(dict(zip(schema, whole, strict=True)), schema)

    def recalled(
        self, side: int, keys: pl.Series, times: Sequence[int], values: Sequence[bytes]
    ) -> pl.DataFrame:
        """Records of one input without bounds that were kept encoded: in columns where they fit."""
        parts, at = key_parts(keys), np.array(times, np.int64)
        columns = None
        if len(parts) == len(self.key_names) and keys.dtype != pl.Binary:
            columns = decoded(values, self.fields[side])
        if columns is None or not -FAR_US < int(at.min()) <= int(at.max()) < FAR_US:
            rows = zip(key_list(keys), times, values, strict=True)
            return self.encoded([(side, key, at, MIN_TIME, MAX_TIME, of) for key, at, of in rows])
        firsts, lasts = self._partners(side, at, columns)
        return self._frame(side, parts, at, firsts, lasts, columns)

    def _partners(self, side: int, at: Int64s, values: pl.DataFrame) -> tuple[Times, Times]:
        """The first and the last time of a partner of each record."""
        bounds = self.bounds[side]
        if len(at) and not -FAR_US < int(at.min()) <= int(at.max()) < FAR_US:
            raise Inexact
        firsts = np.full_like(at, MIN_TIME) if bounds.before_us is None else at - bounds.before_us
        lasts = np.full_like(at, MAX_TIME) if bounds.after_us is None else at + bounds.after_us
        terms = (*bounds.froms, *bounds.untils)
        if not terms:
            return firsts, lasts
        stream = self.streams[side]
        frame = values.rename({name: inner_name(stream, name) for name in values.columns})
        if not is_clean(frame, dict(bounds.reads)):
            raise Inexact
        exact = [check.all() for term in terms for check in term.exact]
        if exact and not all(
            frame.select(each.alias(str(number)) for number, each in enumerate(exact)).row(0)
        ):
            raise Inexact
        for term in bounds.froms:
            firsts = np.maximum(firsts, _times(frame, term, MAX_TIME))
        for term in bounds.untils:
            lasts = np.minimum(lasts, _times(frame, term, MIN_TIME))
        return firsts, lasts

    def pairs(
        self, new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame], watermark: int | None
    ) -> pl.DataFrame | None:
        """The pairs of new records with kept ones and with each other; None for none. ``new`` has
        the numbers of the records, by which they came. ``watermark``: some are behind it, so of two
        new records the first must have been kept until the second came. Raises TooManyPairs."""
        if not _alike([*new, *kept]):
            new, kept = alike(new, with_keys_of(new, kept))
        (old_left, old_right), (left, right) = (
            [side_of(frames, number) for number in range(2)] for frames in (numbered(kept), new)
        )
        pairs = [_met(left, [*old_right, *right]), _met(old_left, right)]
        frames = [frame for frame in pairs if frame is not None]
        if not frames:
            return None
        whole = pl.concat(frames)
        if watermark is not None:
            number, second = pl.col(NUMBER), pl.col(other(NUMBER))
            first = pl.when(number < second).then(pl.col(END)).otherwise(pl.col(other(END)))
            alone = (number < 0) | (second < 0)
            whole = whole.filter(alone | (first > watermark))
        return whole if whole.height else None

    def keys_of(self, pairs: pl.DataFrame) -> pl.Series:
        """The keys of pairs whose values are columns."""
        keys = pairs[KEY]
        return keys if isinstance(keys.dtype, pl.Struct) else keys.alias(self.key_names[0])

    def rows(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """The results of pairs whose values are columns."""
        keys = zip(key_parts(pairs[KEY]), self.key_names, strict=True)
        values = pairs[SIDES[0]], pairs[other(SIDES[1])]
        return pl.DataFrame(
            [
                *(part.alias(name) for part, name in keys),
                *(each.alias(name) for each, name in zip(values, self.streams, strict=True)),
            ]
        )

    def rows_alone(self, side: int, rows: pl.DataFrame, other_type: Any) -> pl.DataFrame:
        """The results of records of one input without a partner, whose values are columns. A
        partner would have ``other_type``."""
        own = rows[SIDES[side]]
        if not self.kind.in_pairs:
            return own.struct.unnest()
        null = pl.Series([None], dtype=other_type).new_from_index(0, rows.height)
        left, right = (own, null) if side == 0 else (null, own)
        sides = {SIDES[0]: left, other(SIDES[1]): right}
        return self.rows(rows.select(KEY).with_columns(**sides))

    def type_of(self, side: int, frames: Sequence[pl.DataFrame]) -> Any:
        """The type of the values of one input, by records or as declared; None: unknown."""
        for frame in frames:
            if SIDES[side] in frame.schema:
                return frame.schema[SIDES[side]]
        try:
            types = {name: dtype(kind) for name, kind in self.fields[side].items()}
        except KeyError:  # there are none in columns
            return None
        return pl.Struct(types) if types else None


@dataclass(frozen=True, slots=True)
class _Spans:
    """For each record the range of others that have its key and a time between its first and its
    last. The others are in the order of key and time."""

    starts: Int64s
    counts: Int64s

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def of(cls, records: pl.DataFrame, others: pl.DataFrame) -> _Spans:
        times = np.unique(others[AT].to_numpy())
        width = len(times) + 1
        # times by their rank among all of them: with the number of a key that is one number
        ranks = others[_CODE].to_numpy().astype(np.int64) * width
        ranks += np.searchsorted(times, others[AT].to_numpy())
        codes = records[_CODE].to_numpy().astype(np.int64) * width
        firsts, lasts = records[START].to_numpy(), records[LAST].to_numpy()
        starts = np.searchsorted(ranks, codes + np.searchsorted(times, firsts, "left"))
        ends = np.searchsorted(ranks, codes + np.searchsorted(times, lasts, "right"))
        return cls(starts, np.maximum(ends - starts, 0))

    def indexes(self) -> tuple[Int64s, Int64s]:
        """The indexes of records, and of others beside them."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        before = np.cumsum(self.counts) - self.counts
        ahead = np.arange(len(rows)) - np.repeat(before, self.counts)
        return rows, np.repeat(self.starts, self.counts) + ahead


def pairing_in_rows(spec: ComputationSpec) -> NearPairing:
    """The pairing of a join that takes no records in columns, for records that another version of
    it holds in columns."""
    left, right = spec.inputs
    work, none = spec.work, Bounds(0, 0)
    assert isinstance(work, IntervalJoinSpec | RegularJoinSpec)
    lasting, streams = isinstance(work, RegularJoinSpec), (left.stream, right.stream)
    return NearPairing(streams, ({}, {}), left.key.shown, (none, none), lasting, work.kind)


class NearRows(JoinWindows):
    """The kept records of a shard. Records that can be removed are removed with the records of a
    bundle; a segment, once all of it can be."""

    def due_at(self) -> int:
        return max((segment.last - 1 for segment in self._segments), default=MAX_TIME)


class LastingRows(LastingSegments, NearRows):
    """The kept records of a join without bounds."""

    def take_closed(self, watermark: int) -> list[pl.DataFrame]:
        return []


def kept_rows(pairing: NearPairing, fan: int) -> NearRows:
    """The records that a shard keeps for a join."""
    return LastingRows(pairing, fan) if pairing.lasting else NearRows(pairing, fan)


def near_encoded_schema() -> dict[str, Any]:
    """The columns of records whose keys and values are encoded."""
    schema = encoded_schema()
    value = schema.pop(VALUE)
    return {**schema, LAST: pl.Int64, VALUE: value}


def at_of(pairs: pl.DataFrame) -> Int64s:
    """The times of pairs: each that of the later record."""
    times: Int64s = np.maximum(pairs[AT].to_numpy(), pairs[other(AT)].to_numpy())
    return times


def _times(frame: pl.DataFrame, term: Term, never: int) -> Times:
    """The values of a bound; a null bounds everything."""
    column = frame.select(term.column.alias(_TIME)).to_series()
    if column.len() != frame.height:
        column = column.new_from_index(0, frame.height)
    times: Times = column.fill_null(never).to_numpy()
    return times


def numbered(kept: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Kept records, with the number that marks them as such."""
    return [frame.with_columns(pl.lit(-1, pl.Int64).alias(NUMBER)) for frame in kept]


def with_keys_of(new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The kept records of the keys of new records."""
    keys = [frame[KEY] for frame in new]
    if len({str(each.dtype) for each in keys}) == 1:
        keys = [pl.concat(keys).unique()]
    masks = [is_among(frame[KEY], keys) for frame in kept]
    pairs = zip(kept, masks, strict=True)
    return [frame.filter(pl.Series(mask)) for frame, mask in pairs if mask.any()]


def alike(
    new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame]
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """The same records in one form: encoded, where there are several forms."""
    if _alike([*new, *kept]):
        return list(new), list(kept)
    return list(map(encoded, new)), list(map(encoded, kept))


def _alike(frames: Sequence[pl.DataFrame]) -> bool:
    """Whether keys and values have one form each."""
    types = {
        (name, str(frame.schema[name]))
        for frame in frames
        for name in (KEY, *SIDES, VALUE)
        if name in frame.schema
    }
    names = {name for name, _ in types}
    return len(types) == len(names) and not (VALUE in names and names & {*SIDES})


def side_of(frames: Sequence[pl.DataFrame], number: int) -> list[pl.DataFrame]:
    """The records of one input."""
    parts = []
    for frame in frames:
        value = VALUE if VALUE in frame.schema else SIDES[number]
        if value not in frame.schema:
            continue
        if value == VALUE or SIDES[1 - number] in frame.schema:
            frame = frame.filter(pl.col(INPUT) == number)
        if frame.height:
            parts.append(frame.select(KEY, START, END, AT, LAST, NUMBER, value))
    return parts


def _met(lefts: Sequence[pl.DataFrame], rights: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """The pairs of left records with right ones. Raises TooManyPairs."""
    if not lefts or not rights:
        return None
    left_is_small = sum(frame.height for frame in lefts) <= sum(frame.height for frame in rights)
    small, large = (lefts, rights) if left_is_small else (rights, lefts)
    keys = pl.concat([frame.select(KEY) for frame in small]).unique(maintain_order=True)
    keys = keys.with_row_index(_CODE)
    many = _coded(large, keys)
    if not many.height:
        return None
    few = _coded(small, keys)
    ones, others = (few, many) if left_is_small else (many, few)
    from_left, from_right = _Spans.of(ones, others), _Spans.of(others, ones)
    if from_left.total <= from_right.total:
        _check(from_left, ones, others, keys)
        left, right = from_left.indexes()
    else:
        _check(from_right, others, ones, keys)
        right, left = from_right.indexes()
    at, other_at = ones[AT].to_numpy()[left], others[AT].to_numpy()[right]
    within = (others[START].to_numpy()[right] <= at) & (at <= others[LAST].to_numpy()[right])
    within &= (ones[START].to_numpy()[left] <= other_at) & (other_at <= ones[LAST].to_numpy()[left])
    if not within.any():
        return None
    partners = others[right[within]].drop(KEY, _CODE).rename(other)
    return pl.concat([ones[left[within]].drop(_CODE), partners], how="horizontal")


def _check(spans: _Spans, records: pl.DataFrame, others: pl.DataFrame, keys: pl.DataFrame) -> None:
    """Raise TooManyPairs where columns should not make these pairs."""
    if spans.total <= _FEW_PAIRS:
        return
    bytes_of_each = sum(frame.estimated_size() / frame.height for frame in (records, others))
    most = max(_FEW_PAIRS, int(MOST_PAIR_BYTES / bytes_of_each))
    if spans.total <= most:
        return
    by_key = pl.DataFrame({_CODE: records[_CODE], NUMBER: spans.counts})
    by_key = by_key.group_by(_CODE).agg(pl.col(NUMBER).sum()).sort(NUMBER, _CODE, descending=True)
    without = spans.total - by_key[NUMBER].cum_sum()
    heavy = by_key.head(int((without > most).sum()) + 1)
    raise TooManyPairs(
        set(key_list(keys.join(heavy, on=_CODE, how="semi")[KEY])), most / spans.total
    )


def _coded(frames: Sequence[pl.DataFrame], keys: pl.DataFrame) -> pl.DataFrame:
    """The records with one of the keys, in the order of these and of time."""
    parts = [frame.join(keys, on=KEY, how="inner") for frame in frames]
    return pl.concat(parts).sort(_CODE, AT)


def other(name: str) -> str:
    """The name of a column of the right record of a pair."""
    return f"{name} of the other"
