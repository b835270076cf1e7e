"""Groups in rows, which a sender makes of records for an aggregation, and which that one receives.

A row is ``[start, end, records, accumulator]`` under its key. A record that the aggregation cannot
use goes as it is, ``[value]``, and becomes a dead letter where it would have become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.formats.codec import encode_value
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.names import NodeName, groups_of
from millwheel.core.model.records import Batch
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import open_windows
from millwheel.core.windows.windows import Sliding, Tumbling, Window, WindowFunction
from millwheel.engine.workers.boundaries import ColumnBoundary, passes
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.errors import RecordError

Decode = Callable[[str, list[Any]], list[Any]]
_RECORD_BYTES = 64
"""Bytes of a group that count as one record."""
_COLUMNS_BYTES = 32
"""Bytes of a list in columns that count as one record."""
_GROUP_PARTS = 4  # Fixed: of the row of a group
_decode = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class RowGrouping:
    """The grouping of records for one computation. ``window`` are the stretches of time of groups.
    ``plan_of`` gives the plan by which columns are grouped, None for columns that are looked at
    record by record. No group is larger than ``most`` bytes."""

    node: NodeName
    window: Tumbling
    aggregation: Aggregation
    plan_of: Callable[[ColumnBatch], ColumnPlan | None]
    decode: Decode
    most: int
    boundary: ColumnBoundary = field(
        default_factory=lambda: ColumnBoundary("grouping by senders"), compare=False
    )

    def groups(self, batch: AnyBatch) -> Batch | None:
        """The groups of some records, under their keys; None if the records must be sent as they
        are, for example since user code fails, which the consumer reports."""
        try:
            groups, refused = self._made(batch)
        except BaseException as ex:  # of a part of these records; the consumer finds out of which
            if passes(ex):
                raise
            return None
        grouped = Batch(groups_of(self.node), [], [], [], [])
        for key, group in groups:
            row = [group.window.start, group.window.end, group.count, WHOLE.encode(group.acc)]
            _append(grouped, key, row, group.window.end - 1)  # holds the window open, and no longer
        for key, value, timestamp in refused:
            _append(grouped, key, [value], timestamp)
        grouped.size = sum(map(len, grouped.values))
        return None if max(map(len, grouped.values), default=0) > self.most else grouped

    def _made(
        self, batch: AnyBatch
    ) -> tuple[Iterable[tuple[Key, Group]], list[tuple[Key, Any, int]]]:
        if isinstance(batch, ColumnBatch):
            plan = self.plan_of(batch)
            if plan is not None:
                try:
                    with self.boundary.inside():
                        whole = replace(plan, window=self.window)
                        return list(whole.row_groups_of(whole.group(batch), batch)), []
                except Inexact:
                    pass
            batch = batch.rows()
        return self._of_rows(batch)

    def _of_rows(self, batch: Batch) -> tuple[list[tuple[Key, Group]], list[tuple[Key, Any, int]]]:
        by_group: dict[tuple[Key, Window], tuple[list[Any], list[int]]] = {}
        refused: list[tuple[Key, Any, int]] = []
        prepare, window_of = self.aggregation.prepare, self.window.window
        values = self.decode(batch.stream, batch.values)
        for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
            try:
                ready, window = prepare(value), window_of(timestamp)
            except RecordError:
                refused.append((key, value, timestamp))
                continue
            if ready is not FILTERED:
                cell = by_group.get((key, window))
                if cell is None:
                    cell = by_group[key, window] = ([], [])
                cell[0].append(ready)
                cell[1].append(timestamp)
        add, create = self.aggregation.add_many, self.aggregation.create
        groups = [
            (key, Group(window, add(create(), ready, stamps), len(stamps), None, None))
            for (key, window), (ready, stamps) in by_group.items()
        ]
        return groups, refused


def _append(batch: Batch, key: Key, row: list[Any], timestamp: int) -> None:
    batch.keys.append(key)
    batch.timestamps.append(timestamp)
    batch.values.append(msgspec.Raw(encode_value(row)))


def cost(groups: AnyBatch) -> float:
    """The number of records that groups are worth, by their number and by their bytes."""
    if isinstance(groups, ColumnBatch):
        return len(groups) + bytes_of_lists(groups.frame) / _COLUMNS_BYTES
    return max(len(groups), groups.size / _RECORD_BYTES)


def bytes_of_lists(groups: pl.DataFrame) -> int:
    """The bytes of the lists of groups: the more records there are, the more."""
    return sum(
        int(column.estimated_size())
        for column in groups.get_columns()
        if isinstance(column.dtype, pl.List)
    )


@dataclass(frozen=True, slots=True)
class Received:
    """The content of the groups that came: ``groups`` of windows that are open, those of a key
    together; ``records`` that are to be looked at one by one, as arrivals; how many records were
    ``late``; and how many more records than groups there were (``beyond_one``)."""

    groups: list[tuple[Key, Group]]
    records: list[Arrival]
    late: int
    beyond_one: int


def are_groups(batch: AnyBatch, name: str) -> bool:
    """Whether these are groups in rows, in a stream of this name."""
    return isinstance(batch, Batch) and batch.stream == name


def received(
    arrivals: Iterable[Arrival], stream: str, window: WindowFunction, watermark: int
) -> Received:
    """Take groups apart. ``stream`` is the one whose records they stand for, ``window`` that of the
    computation."""
    by_key: dict[Key, list[Group]] = {}
    records: list[Arrival] = []
    late = beyond_one = 0
    for arrival in arrivals:
        batch = arrival.batch.rows()
        odd = Batch(stream, [], [], [], [], None, batch.born_us)
        for key, raw, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            row = _decode(raw)
            if len(row) < _GROUP_PARTS:
                odd.keys.append(key)
                odd.timestamps.append(timestamp)
                odd.values.append(row[0])
                continue
            start, end, count, acc = row
            beyond_one += count - 1
            windows = open_windows(_windows(window, Window(start, end)), watermark)
            if not windows:
                late += count
                continue
            decoded = WHOLE.decode(acc)
            by_key.setdefault(key, []).extend(
                Group(each, decoded, count, None, None) for each in windows
            )
        if len(odd):
            records.append(replace(arrival, batch=odd))
    return Received(
        [(key, group) for key, groups in by_key.items() for group in groups],
        records,
        late,
        beyond_one,
    )


def _windows(window: WindowFunction, stretch: Window) -> Sequence[Window]:
    """The windows that all records of a stretch of time belong to."""
    return window.assign(stretch.start) if isinstance(window, Sliding) else (stretch,)
