"""Sessions whose input may be taken back: a retraction can shorten a session, split it, or end it.

The records are kept, so that a session can be computed without one of them. When a session splits,
its emitted results are retracted at once, so that the whole and its parts never stand together. The
parts fire later, by their triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.arrival_order import OLD
from millwheel.core.machines.sessions import Entry, Index, Merging, MergingMachine, span
from millwheel.core.windows.calls import Call, Gone, Taken
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.state import PAST_ON_TIME, WindowState
from millwheel.core.windows.windows import Window


class UnmergingMachine(MergingMachine):
    """Merging windows over input with retractions."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, function: Merging) -> None:
        super().__init__(windowing, aggregation, function)
        self._keeps = True

    def _add(self, own: WindowState, taken: Taken) -> None:
        own.acc = self.aggregation.add_many(own.acc, taken.prepared, taken.timestamps)
        own.kept.extend([timestamp, value, number] for number, timestamp, _, value in taken.rows)

    def _absorb(self, own: WindowState, other: WindowState) -> None:
        super()._absorb(own, other)
        own.kept.sort(key=_arrival)
        if self.aggregation.ordered:
            own.acc = self._again(own.kept)

    def _unmerge(self, call: Call, index: Index, gone: Sequence[Gone]) -> list[Entry]:
        touched: list[Entry] = []
        for record in gone:
            entry = self._holder(call, index, record)
            if entry is not None and not any(entry is other for other in touched):
                touched.append(entry)
        return [part for entry in touched for part in self._parts(call, index, entry)]

    def _holder(self, call: Call, index: Index, record: Gone) -> Entry | None:
        """Take the record out of the window that holds it; returns that window."""
        for entry in index.entries:
            if entry[3] or not entry[0] <= record.timestamp < entry[1]:
                continue
            own = self._stored(call, entry)
            retracted = [record.timestamp, record.value]
            position = next(
                (position for position, kept in enumerate(own.kept) if kept[:2] == retracted), None
            )
            if position is not None:
                del own.kept[position]
                own.count -= 1
                own.fresh += 1
                call.state[entry[2]] = own
                return entry
        self._not_held(record, call)
        return None

    def _parts(self, call: Call, index: Index, entry: Entry) -> list[Entry]:
        """The windows that remain of one that lost records."""
        own = self._stored(call, entry)
        groups = self._regroup(own.kept)
        if len(groups) != 1:
            self._take_back(own, call)
        if not groups:
            self._forget(entry[2], own, call)
            index.entries.remove(entry)
            return []
        kept = own.kept
        first, *others = [
            (window, [record for record in kept if _inside(record, window)]) for window in groups
        ]
        self._become(own, *first, call)
        entry[0], entry[1] = first[0]
        call.state[entry[2]] = own
        return [
            entry,
            *(self._split_off(call, index, window, records) for window, records in others),
        ]

    def _regroup(self, records: Sequence[Sequence[Any]]) -> list[Window]:
        windows = sorted(
            {window for record in records for window in self._function.assign(record[0])}
        )
        return [span(members) for members in self._function.merge(windows)]

    def _split_off(self, call: Call, index: Index, window: Window, records: list[Any]) -> Entry:
        entry = index.add(window)
        own = self._born(window, call.times.watermark)
        self._become(own, window, records, call)
        own.fresh = len(records)
        own.trigger = self._trigger.add(own.trigger, len(records), 0, call.moment(window))
        call.state[entry[2]] = own
        return entry

    def _become(self, own: WindowState, window: Window, records: list[Any], call: Call) -> None:
        """Give the window these records in place of its own."""
        own.kept, own.count = records, len(records)
        own.acc = self._again(records)
        if is_complete(window.end, call.times.watermark):
            own.flags |= PAST_ON_TIME


def _arrival(record: Sequence[Any]) -> int:
    """The number of a kept record; records without one, of earlier versions, came first."""
    return int(record[2]) if len(record) > 2 else OLD


def _inside(record: Sequence[Any], window: Window) -> bool:
    return bool(window.start <= record[0] < window.end)
