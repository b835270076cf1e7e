"""The first records of a key by an order, and how a bundle of records changes them.

Behind the orders stand the time, the earlier (or the ``latest``) first, and the record's bytes; so
the rows are a function of the records and not of how they came. Where records are taken back, the
time does not count: a row has the time of the change that brought it, which is not part of the row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any

from millwheel.core.aggregates.families.rows import ChosenRows, Entry, content, order_of
from millwheel.core.aggregates.specs import value_reader
from millwheel.core.model.records import Record
from millwheel.core.pipeline.work import TopSpec
from millwheel.core.windows.panes import as_retraction

Row = tuple[Any, int]
"""(value, the time of its record in µs)."""


class Ranking:
    """The order of a :class:`TopSpec`. Entries are never changed in place: the same object in two
    lists is the same record. ``compile_expression`` raises ValueError for an invalid text."""

    def __init__(self, spec: TopSpec, compile_expression: Callable[[str], Any]) -> None:
        orders = [order_of(text) for text in spec.by]
        self._rows = ChosenRows("top", orders, spec.k, False, spec.latest, spec.rank)
        self._reads = [value_reader(each.text, False, compile_expression) for each in orders]
        plain = all(each.text.isidentifier() for each in orders)
        self._names = tuple(each.text for each in orders) if plain else ()
        self._k = spec.k
        self._rank = spec.rank
        self._latest = spec.latest
        self._by_time = not spec.by and spec.k == 1
        self._anything = not spec.by and not spec.rank  # each record has a place

    def added(self, kept: list[Entry], records: Sequence[Record]) -> list[Entry]:
        """The first ``k`` of the entries kept so far and of new records; ``kept`` itself where the
        new ones change nothing. Raises RecordError for a record without a place in the order."""
        if self._by_time:
            records = self._ends(records)
            at = records[0].timestamp
            if kept and self._is_beyond(at, kept[0][1]):
                return kept
            if len(records) == 1 and (not kept or at != kept[0][1]):
                return [self.entry(records[0].value, at)]
        entries = self._entries(records, kept[-1] if len(kept) == self._k else None)
        if not entries:
            return kept
        return self._changed(kept, self._rows.first([*kept, *entries]))

    def with_entries(self, kept: list[Entry], entries: Sequence[Entry]) -> list[Entry]:
        """The same for entries that are made already, in order, ``k`` at most."""
        if not kept:
            return [*entries]
        key = self._rows.sort_key
        if len(kept) == self._k and not key(entries[0]) < key(kept[-1]):
            return kept
        return self._changed(kept, self._rows.first([*kept, *entries]))

    def _changed(self, kept: list[Entry], after: list[Entry]) -> list[Entry]:
        same = len(after) == len(kept) and all(map(is_, after, kept))
        return kept if same else after

    def _entries(self, records: Sequence[Record], last: Entry | None) -> list[Entry]:
        """The entries of some records; some that come behind ``last`` may be missing."""
        columns = self._columns(records)
        if columns is None:
            return [self.entry(record.value, record.timestamp) for record in records]
        every = range(len(records))
        some = every if last is None else self._rows.may_precede(columns[0], last[0][0])
        return [
            [[column[index] for column in columns], records[index].timestamp, records[index].value]
            for index in some
        ]

    def _columns(self, records: Sequence[Record]) -> list[list[Any]] | None:
        """The values that the orders read of all records; None where each record has to be looked
        at alone."""
        if not self._names or {type(record.value) for record in records} != {dict}:
            return None
        try:
            columns = [[record.value[name] for record in records] for name in self._names]
        except KeyError:
            return None
        return columns if self._rows.fitting(columns) else None

    def changed(
        self, kept: list[Entry], owed: list[Entry], records: Iterable[Record]
    ) -> tuple[list[Entry], list[Entry]]:
        """All entries, in order, after records that each bring a row or take one back; and the rows
        that were taken back before they came."""
        kept, owed = [*kept], [*owed]
        for record in records:
            back = as_retraction(record.value)
            entry = self.entry(record.value if back is None else back.value, 0)
            if not self._leave(owed if back is None else kept, entry):
                insort(kept if back is None else owed, entry, key=self._rows.sort_key)
        return kept, owed

    def differences(
        self, before: Sequence[Entry], after: Sequence[Entry]
    ) -> tuple[list[Any], list[Row]]:
        """(rows that are taken back, new rows) from one list of entries to another, of which the
        first ``k`` count. A row whose content stays, at its rank if it has one, is in neither."""
        before, after = before[: self._k], after[: self._k]
        if not before and not self._rank:
            return [], [(entry[2], entry[1]) for entry in after]
        if self._rank:
            return self._shifted(before, after)
        stay = {id(entry) for entry in before} & {id(entry) for entry in after}
        gone = [entry for entry in before if id(entry) not in stay]
        new: list[Row] = []
        for entry in after:
            if id(entry) not in stay:
                alike = next((each for each in gone if _unchanged(each, entry)), None)
                if alike is None:
                    new.append((entry[2], entry[1]))
                else:
                    gone.remove(alike)
        return [entry[2] for entry in gone], new

    def _shifted(
        self, before: Sequence[Entry], after: Sequence[Entry]
    ) -> tuple[list[Any], list[Row]]:
        same = [
            one is other or _unchanged(one, other)
            for one, other in zip(before, after, strict=False)
        ]
        stay = [*same, *([False] * (self._k - len(same)))]
        gone = [self._placed(each, n) for n, each in enumerate(before) if not stay[n]]
        new = [(self._placed(each, n), each[1]) for n, each in enumerate(after) if not stay[n]]
        return gone, new

    def _placed(self, entry: Entry, index: int) -> dict[str, Any]:
        return {**entry[2], self._rank: index + 1}

    def entry(self, value: Any, timestamp: int) -> Entry:
        """The entry of a row. Raises RecordError for one without a place in the order."""
        if self._anything:
            return [[], timestamp, value]
        checked, row = self._rows.check([[read(value) for read in self._reads], value], "")
        return [checked, timestamp, row]

    def _ends(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records of the earliest or of the latest time."""
        if len(records) == 1:
            return records
        times = [record.timestamp for record in records]
        end = max(times) if self._latest else min(times)
        return [each for each, at in zip(records, times, strict=True) if at == end]

    def _is_beyond(self, at: int, kept: int) -> bool:
        return at < kept if self._latest else at > kept

    def _leave(self, entries: list[Entry], entry: Entry) -> bool:
        """Remove one entry of this content; returns whether there was one."""
        at = bisect_left(entries, self._rows.sort_key(entry), key=self._rows.sort_key)
        # equal content in another order of fields may stand on either side
        for index in (at, at - 1):
            if 0 <= index < len(entries) and _alike(entries[index], entry):
                del entries[index]
                return True
        return False


def _unchanged(one: Entry, other: Entry) -> bool:
    # equality is cheap and mostly False, though it takes 1 for 1.0
    return bool(one[2] == other[2]) and _alike(one, other)


def _alike(one: Entry, other: Entry) -> bool:
    """Whether two records are the same but for the order of their fields."""
    return content(one[2]) == content(other[2])
