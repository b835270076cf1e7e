"""The groups of a change log of which some aggregates grow: the different values of each group.

A bundle writes its changes. Its segment has the newest of all other columns, as with
:class:`LastingGroups`, but of the values only those that no older segment has of their group.
Segments that become one have the values of all. A set of all pairs of a group and a value decides
which values are new. It is in memory alone, and made of the segments when it is first
needed. There a group has a number. A group that has left the columns gets another one when it comes
back, so that its old pairs need not be looked for; they go once they are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import key_list
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.segments import ColumnarSegment
from millwheel.core.columns.state.change_logs import LastingGroups, newest_and_all
from millwheel.core.columns.state.pair_set import PairSet
from millwheel.core.formats.number_runs import words_of_column
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.errors import invariant

_NUMBER, _AT, _VALUES = "number", "at", "values"
_PAIR_BYTES = 32
"""About the bytes of a pair in the set, beside its value in a segment."""
_Words = npt.NDArray[np.uint64]
_Int64s = npt.NDArray[np.int64]


class GrowingGroups(LastingGroups):
    """Groups without an end that have lists of values."""

    def __init__(self, plan: GroupsPlan) -> None:
        super().__init__()
        self._counting = plan.counting
        self._listed = [each.listed for each in plan.counting]
        self._plan = _NewestAndAll(self._listed)
        self._numbered = 0
        self._restored: pl.DataFrame | None = None
        """The numbers of the keys of the segments that were found in the store."""
        self._seen: PairSet | None = None
        self._gone = 0
        """Pairs of the set whose groups have left."""

    def counted(self, old: pl.DataFrame | None, new: pl.DataFrame) -> pl.DataFrame:
        """Drop the values that are not new, and fill in the numbers of all."""
        new = new.with_columns(pl.Series(_NUMBER, self._numbers(old, new.height)))
        parts = [self._pairs_of(new, number) for number in range(len(self._listed))]
        halves = [np.concatenate([part.words[half] for part in parts]) for half in (0, 1)]
        fresh = self._set().add(*halves)
        columns = []
        for each, part in zip(self._counting, parts, strict=True):
            mask, fresh = fresh[: len(part.owners)], fresh[len(part.owners) :]
            owners, values = part.owners[mask], part.values.filter(pl.Series(mask))
            columns.append(_lists(owners, values, new.height).alias(each.listed))
            added = np.bincount(owners, minlength=new.height)
            columns.append(new[each.counted] + pl.Series(each.counted, added))
        return new.with_columns(columns)

    def outgrown(self, groups: pl.DataFrame) -> list[Key]:
        large = groups.filter(pl.any_horizontal(each.outgrown() for each in self._counting))
        return key_list(large[KEY])

    def size(self) -> int:
        return super().size() + _PAIR_BYTES * sum(map(self._held_in, self._segments))

    def cut(self, segment: ColumnarSegment, rest: pl.DataFrame) -> None:
        before = self._held_in(segment)
        super().cut(segment, rest)
        self._gone += before - (self._held_in(segment) if rest.height else 0)
        if self._seen is not None and 2 * self._gone > len(self._seen):
            self._seen = None

    def numbers(self) -> set[int]:
        """The numbers of its segments. Raises InvariantError unless the set has their pairs and the
        counts match. For tests."""
        if self._seen is not None:
            held = sum(map(self._held_in, self._segments))
            invariant(
                len(self._seen) == held + self._gone,
                f"{len(self._seen)} pairs are known, {self._gone} have left, {held} are there",
            )
        whole = self.all_groups() if self._segments else None
        for each in self._counting if whole is not None else ():
            assert whole is not None
            counts = whole[each.listed].list.n_unique()
            invariant(
                whole[each.counted].eq(counts).all(), f"{each.counted} does not count its values"
            )
        return super().numbers()

    def _looked_at(self, groups: pl.DataFrame) -> pl.DataFrame:
        nothing = [pl.lit(None, groups.schema[name]).alias(name) for name in self._listed]
        return groups.with_columns(nothing)

    def _take_stored(self, number: int, level: int, groups: pl.DataFrame, fired: int) -> None:
        # Numbers mean nothing outside of one owner's memory: two parents have the same.
        groups = groups.drop(_NUMBER, strict=False)
        keys = groups.select(KEY).with_columns(pl.lit(None, pl.Int64).alias(_NUMBER))
        if self._restored is not None:
            keys = groups.select(KEY).join(
                self._restored, on=KEY, how="left", maintain_order="left"
            )
        new = keys[_NUMBER].is_null()
        fresh = self._numbered + new.cast(pl.Int64).cum_sum() - 1
        self._numbered += int(new.sum())
        numbers = keys[_NUMBER].zip_with(~new, fresh).alias(_NUMBER)
        added = keys.with_columns(numbers).filter(new)
        old = [] if self._restored is None else [self._restored]
        self._restored = pl.concat([*old, added])
        super()._take_stored(number, level, groups.with_columns(numbers), fired)

    def _numbers(self, old: pl.DataFrame | None, count: int) -> _Int64s:
        """The numbers of the groups of a bundle, those of ``old`` first."""
        held = np.empty(0, np.int64) if old is None else old[_NUMBER].to_numpy()
        end = self._numbered + count - len(held)
        numbers = np.concatenate([held, np.arange(self._numbered, end)])
        self._numbered = end
        return numbers

    def _set(self) -> PairSet:
        if self._seen is None:
            self._restored, self._gone, self._seen = None, 0, PairSet()
            for segment in self._segments:
                for number in range(len(self._listed)):
                    self._seen.add(*self._pairs_of(segment.groups, number).words)
        return self._seen

    def _pairs_of(self, groups: pl.DataFrame, number: int) -> _Pairs:
        """The values of an aggregate."""
        lists = groups[self._listed[number]]
        lengths = lists.list.len().fill_null(0).to_numpy()
        values = lists.filter(pl.Series(lengths > 0)).explode()
        owners = np.repeat(np.arange(groups.height), lengths)
        codes = groups[_NUMBER].to_numpy()[owners] * len(self._listed) + number
        low, high = _words_of(values)
        return _Pairs(owners, values, (low, high ^ codes.view(np.uint64)))

    def _held_in(self, segment: ColumnarSegment) -> int:
        """How many pairs a segment has."""
        return sum(int(segment.groups[name].list.len().sum()) for name in self._listed)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Values, the groups they belong to, and the two words that stand for each pair."""

    owners: _Int64s
    values: pl.Series
    words: tuple[_Words, _Words]


class _NewestAndAll:
    """Merges segments of such groups."""

    def __init__(self, listed: Sequence[str]) -> None:
        self._listed = listed

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The newest of each group, with the values of all segments."""
        if len(groups) == 1:
            return groups[0]
        return newest_and_all(pl.concat(groups), _NUMBER, self._listed)


def _words_of(values: pl.Series) -> tuple[_Words, _Words]:
    """The words that stand for values: for text 128 bits of its hash."""
    if values.dtype == pl.Float64:
        numbers = values.to_numpy() + 0.0  # of two zeros one
        return numbers.view(np.uint64), np.zeros(len(numbers), np.uint64)
    return words_of_column(values)


def _lists(owners: _Int64s, values: pl.Series, count: int) -> pl.Series:
    """The values of each of so many owners, null for none."""
    at = pl.Series(_AT, owners)
    grouped = pl.DataFrame([at, values.alias(_VALUES)]).group_by(_AT, maintain_order=True).agg("*")
    index = np.full(count, -1)
    index[grouped[_AT].to_numpy()] = np.arange(grouped.height)
    lists: pl.Series = grouped[_VALUES].gather(pl.Series(index).replace(-1, None))
    return lists
