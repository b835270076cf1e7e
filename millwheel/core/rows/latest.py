"""The row of a key of a table: the last record by time, of one time the last in its source.

The last entry of a key counts after its row has gone, too: an earlier record may still come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millwheel.core.aggregates.families.rows import Entry, content
from millwheel.core.model.records import Record
from millwheel.core.pipeline.work import CopiesSpec, EnrichSpec, OverSpec, TopSpec, Work

_Row = tuple[Any, int]
DELETED_FIELD = "__deleted__"
"""A field that is true in the record of a message without a value: its key has no row."""
_GONE = 2  # Fixed: parts of an entry without a row


class Located(Record[Any], gc=False):
    """A record with its position: the ``channel`` of its partition, and its number there."""

    channel: str = ""
    number: int = 0


def table_without_times(work: Work) -> str:
    """The stream of a table without times that comes beside the records that are enriched with it;
    "" for none."""
    if not isinstance(work, EnrichSpec) or work.held:
        return ""
    return work.stream if work.timeless else ""


def is_located(work: Work) -> bool:
    """Whether calls get the positions of records in their source."""
    ordered = isinstance(work, OverSpec | CopiesSpec)
    ordered = ordered or (isinstance(work, TopSpec) and work.upserts)
    return ordered or bool(table_without_times(work))


def deletion(condition: Callable[[Any], Any] | None) -> Callable[[Any], bool]:
    """Whether a record deletes the row of its key: one of a message without a value, or one that
    satisfies ``condition``."""

    def deletes(value: Any) -> bool:
        if type(value) is dict and value.get(DELETED_FIELD) is True:
            return True
        return condition is not None and bool(condition(value))

    return deletes


class LatestRow:
    """The changes to the row of a key. An entry is [position, time] and, unless the row has gone,
    the row itself; a list of entries has one at most. ``deletes``: whether a record deletes the row
    of its key."""

    def __init__(self, deletes: Callable[[Any], bool]) -> None:
        self._deletes = deletes

    def added(self, kept: list[Entry], records: Sequence[Record]) -> list[Entry]:
        """The entry after some located records; ``kept`` itself where they are all before it.
        Raises RecordError for a record that ``deletes`` cannot judge."""
        # Each is judged, and not only the last: dead letters must not depend on which records come
        # together. See test_each_record_is_judged_however_they_come_together.
        gone = [self._deletes(each.value) for each in records]
        last = max(range(len(records)), key=lambda index: _position(records[index]))
        position = _position(records[last])
        if kept and position < kept[0][0]:
            return kept
        entry = [position, records[last].timestamp]
        return [entry if gone[last] else [*entry, records[last].value]]

    def changed(
        self, kept: list[Entry], owed: list[Entry], records: Sequence[Record]
    ) -> tuple[list[Entry], list[Entry]]:
        """Not used: the source of a table takes nothing back."""
        return self.added(kept, records), owed

    def differences(
        self, before: Sequence[Entry], after: Sequence[Entry]
    ) -> tuple[list[Any], list[_Row]]:
        """(the row that is taken back, the new row), none or one of each. A row whose content stays
        is in neither."""
        old, new = ([each for each in side if len(each) > _GONE] for side in (before, after))
        if old and new and content(old[0][2]) == content(new[0][2]):
            return [], []
        return [entry[2] for entry in old], [(entry[2], entry[1]) for entry in new]


def _position(record: Record) -> list[Any]:
    assert isinstance(record, Located)
    return [record.timestamp, record.channel, record.number]
