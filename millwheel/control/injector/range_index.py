"""The shards of one range table in the order of their ranges, with the watermark service's data on
each."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millwheel.control.injector.events import Longs
from millwheel.core.model.lease import Leases
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import check_tiling
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.errors import invariant

_NOBODY = 0  # Fixed: no connection
NOWHERE = -1
"""The row of a shard that the table does not have, or has under another token."""


@dataclass(slots=True)
class RangeIndex:
    """Columns by row: the order of the ranges."""

    entries: tuple[ShardEntry, ...]
    row_of: dict[str, int]
    tokens: Longs
    values: Longs
    reported: NDArray[np.bool_]
    confirmed_to: Longs
    """The connection to which the token was confirmed."""
    holders: NDArray[Any]
    counters: list[dict[str, int]]
    idle: Longs
    """The times up to which silence has moved idle shards."""
    shares: dict[float, Longs] = field(default_factory=dict)
    lowest_row: int = 0
    """A row with the lowest value. Until its value rises, the minimum cannot rise."""

    @staticmethod
    def silent(entries: tuple[ShardEntry, ...]) -> RangeIndex:
        """An index without any reports."""
        entries = tuple(sorted(entries, key=lambda entry: entry.range.lo))
        count = len(entries)
        return RangeIndex(
            entries=entries,
            row_of={entry.shard: row for row, entry in enumerate(entries)},
            tokens=np.fromiter((entry.token for entry in entries), np.int64, count),
            values=np.full(count, MIN_TIME, np.int64),
            reported=np.zeros(count, np.bool_),
            confirmed_to=np.full(count, _NOBODY, np.int64),
            holders=np.full(count, "", object),
            counters=[{} for _ in range(count)],
            idle=np.full(count, MIN_TIME, np.int64),
        )

    def share(self, share: float) -> Longs:
        """The values of all shards for a percentile watermark."""
        if share not in self.shares:
            self.shares[share] = np.full(len(self.entries), MIN_TIME, np.int64)
        return self.shares[share]

    def find(self, shards: Sequence[str]) -> Longs:
        """The rows of shards, regardless of their tokens."""
        return np.fromiter(map(self.row_of.get, shards, repeat(NOWHERE)), np.int64, len(shards))

    def valid_rows(self, rows: Longs, tokens: Longs) -> Longs:
        """The rows at which the table has these tokens; the others become NOWHERE."""
        if not self.entries:
            return np.full(len(rows), NOWHERE, np.int64)
        # A zombie has read further than its successor, which begins at its last durable commit: its
        # watermark would overtake records that the successor sends again, and their windows would
        # be gone (tests/sim: token_not_checked).
        current = (rows != NOWHERE) & Leases(self.tokens[rows]).admit(tokens)
        return np.where(current, rows, NOWHERE)

    def rise(self, rows: Longs, watermarks: Longs) -> int:
        """Take reported watermarks. Returns how many were lower than the ones before. An idle shard
        starts anew."""
        values = self.values
        before = values[rows]
        if (idle := rows[before == IDLE_TIME]).size:
            values[idle] = MIN_TIME
            before = values[rows]
            for column in self.shares.values():
                column[idle] = MIN_TIME
        np.maximum.at(values, rows, watermarks)
        self.reported[rows] = True
        return int(np.count_nonzero(watermarks < before))

    def lowest_above(self, floor: int | None) -> int | None:
        """The lowest value (µs) of the shards that are not idle. If all are idle, the highest time
        to which silence has moved one of them, as among the partitions of one shard. None if the
        result is not above ``floor``."""
        values = self.values
        if floor is not None and values[self.lowest_row] <= floor:
            return None
        self.lowest_row = int(values.argmin())
        lowest = int(values[self.lowest_row])
        # Shards that have ended do not count: an idle one may have more.
        if lowest == IDLE_TIME:
            lowest = int(self.idle[values == IDLE_TIME].max())
            floor = MIN_TIME if floor is None else floor
        return lowest if floor is None or lowest > floor else None

    @property
    def silent_up_to(self) -> int | None:
        """The time to which silence has moved the shards, if all are idle or have ended; else
        None."""
        values = self.values
        if not len(values) or values.min() != IDLE_TIME:
            return None
        return int(self.idle[values == IDLE_TIME].max())

    def validate(self) -> None:
        """Raise InvariantError unless each row is about its shard, and the shards have all keys.
        For tests."""
        count = len(self.entries)
        if count:
            check_tiling(
                (entry.range for entry in self.entries), "the shards of an injector's node"
            )
        columns: tuple[Sized, ...] = (
            self.tokens,
            self.values,
            self.reported,
            self.confirmed_to,
            self.holders,
            self.counters,
            self.idle,
        )
        lengths = {len(column) for column in (*columns, *self.shares.values())}
        invariant(
            lengths == {count}, f"{count} shards have columns of the lengths {sorted(lengths)}"
        )
        rows = {entry.shard: row for row, entry in enumerate(self.entries)}
        invariant(self.row_of == rows, f"the rows of shards are {rows}, not {self.row_of}")
        tokens = [entry.token for entry in self.entries]
        invariant(
            self.tokens.tolist() == tokens,
            f"the tokens of the table are {tokens}, not {self.tokens.tolist()}",
        )
        early = self.values[~self.reported & (self.values == IDLE_TIME)]
        invariant(not early.size, "a shard without reports counts as idle")

    def inherit(self, old: RangeIndex) -> None:
        """Carry over the values of an older table: exactly for an unchanged range, as a bound
        otherwise."""
        first = 0
        for row, entry in enumerate(self.entries):
            while first < len(old.entries) and old.entries[first].range.hi <= entry.range.lo:
                first += 1
            last = first
            while last < len(old.entries) and old.entries[last].range.lo < entry.range.hi:
                last += 1
            # With a gap in the old ranges, the watermark would pass records that are held there.
            if old.entries:
                bounds = [each.range for each in old.entries[first:last]]
                invariant(
                    bool(bounds)
                    and bounds[0].lo <= entry.range.lo
                    and entry.range.hi <= bounds[-1].hi,
                    f"{entry.shard} {entry.range} is not covered by the shards before, {bounds}",
                )
            if first < last:
                self._inherit_value(row, old, first, last)
            before = old.row_of.get(entry.shard)
            if before is not None:
                self._inherit_name(row, old, before)

    def _inherit_value(self, row: int, old: RangeIndex, first: int, last: int) -> None:
        lowest = first + int(old.values[first:last].argmin())
        self.values[row] = old.values[lowest]
        self.idle[row] = old.idle[lowest]
        self.reported[row] = old.reported[first:last].all()
        for share, column in old.shares.items():
            self.share(share)[row] = column[first:last].min()
        same = old.entries[lowest].shard == self.entries[row].shard
        self.holders[row] = (
            old.holders[lowest] if same else f"taken over from {old.entries[lowest].shard}"
        )

    def _inherit_name(self, row: int, old: RangeIndex, before: int) -> None:
        self.counters[row] = old.counters[before]
        if old.entries[before].lease.admits(self.entries[row].token):
            self.confirmed_to[row] = old.confirmed_to[before]
