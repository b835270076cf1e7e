"""The first records of each key, as a change log: ``top:``, ``deduplicate:`` with ``keep``, and the
rows of ``table:``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from millwheel.api import Computation, Context, ValueHandle, ValueState
from millwheel.core.aggregates.families.rows import Entry
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.records import Record
from millwheel.core.rows.latest import LatestRow
from millwheel.core.rows.ranking import Ranking, Row
from millwheel.core.windows.panes import retracted
from millwheel.engine.workers.state.stored_types import Certain


class KeptRows(Certain, array_like=True):
    """The entries of a key. Their rows have come back from bytes, or will."""

    entries: list[Any]


class FirstRows(Computation):
    """The computation that emits the changes of the first rows of a key by records that came
    together: first all rows that are not among them any more, each taken back, then those that are
    new. All have the latest time of these records, but a new row whose record is one of them has
    its own."""

    first: ValueState[KeptRows | None] = ValueState(KeptRows)
    owed: ValueState[KeptRows | None] = ValueState(KeptRows)

    def __init__(
        self, ranking: Ranking | LatestRow, outputs: tuple[str, ...], takes_back: bool
    ) -> None:
        self._ranking = ranking
        self._outputs = outputs
        self._takes_back = takes_back

    def process_batch(self, ctx: Context, records: Sequence[Record]) -> None:
        """Rank the records of a key."""
        if {type(record.value) for record in records} != {dict}:
            records = [_plain(record) for record in records]
        before = _entries(self.first)
        after = self._after(before, records)
        times = [record.timestamp for record in records]
        self._update(ctx, before, after, min(times), max(times))

    def process_entries(
        self, ctx: Context, entries: Sequence[Entry], earliest: int, latest: int
    ) -> None:
        """Rank the records of a key. Those that may be among the first are ``entries``, in order;
        the times are those of all."""
        assert isinstance(self._ranking, Ranking)
        before = _entries(self.first)
        after = self._ranking.with_entries(before, entries)
        self._update(ctx, before, after, earliest, latest)

    def keep(self, rows: Sequence[Row]) -> None:
        """Keep the first rows of the current key, which have been emitted."""
        assert isinstance(self._ranking, Ranking)
        _keep(self.first, [self._ranking.entry(*row) for row in rows])

    def kept(self) -> list[Row]:
        """The first rows of the current key. For tests."""
        return [(entry[-1], entry[1]) for entry in _entries(self.first)]

    def _update(
        self, ctx: Context, before: list[Entry], after: list[Entry], earliest: int, latest: int
    ) -> None:
        """Keep the entries, and emit the changes."""
        if after is before:
            return
        _keep(self.first, after)
        gone, new = self._ranking.differences(before, after)
        if not gone and not new:
            return
        for stream in self._outputs:
            for row in gone:
                ctx.produce(stream, retracted(row), timestamp=latest)
            for row, at in new:
                ctx.produce(stream, row, timestamp=at if at >= earliest else latest)

    def _after(self, before: list[Entry], records: Sequence[Record]) -> list[Entry]:
        if not self._takes_back:
            return self._ranking.added(before, records)
        owed = _entries(self.owed)
        after, still = self._ranking.changed(before, owed, records)
        if still or owed:
            _keep(self.owed, still)
        return after


def _entries(state: ValueHandle[KeptRows | None]) -> list[Entry]:
    kept = state.get()
    return [] if kept is None else kept.entries


def _keep(state: ValueHandle[KeptRows | None], entries: list[Entry]) -> None:
    if entries:
        state.set(KeptRows(entries))
    else:
        state.clear()


def _plain(record: Record) -> Record:
    """The record with a value as it comes back from state: an object is a map."""
    if isinstance(record.value, dict):
        return record
    return structs.replace(record, value=decode_value(encode_value(record.value)))
