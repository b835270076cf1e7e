"""The watermark of one node, from the reports of its shards.

Everything that decides what a report is worth lives here.

- Only the owner under the token of the **range table** is believed. An older token is a zombie's, which knows nothing
  of what its successor holds, and is refused.
- A report ahead of the table seen here (the table watch lags behind the owners) **waits** for that table, and so does
  its answer, without which its owner acks nothing. Until the table says which shards lost their ranges to the new
  one, zombies of any of them could still raise the watermark over what the new owner has acked.
- The **value** of a shard is the highest watermark reported. A shard without owner keeps its last one; a shard with a
  new range starts from the lowest of the shards that had it before.
- A shard of a source that has no live input reports IDLE_TIME: it counts for nothing until it reports a time again,
  which may then be lower. What was published never falls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millwheel.core.percentiles import wanted
from millwheel.core.table import RangeTable, ShardEntry
from millwheel.core.times import IDLE_TIME, MIN_TIME
from millwheel.core.watermark import ShardReport
from millwheel.injector.events import Longs, ReportColumns

_NOBODY = 0
_MAX_WAITING = 1_000_000


@dataclass(slots=True)
class Tiles:
    """The shards of one range table in the order of their ranges, and what is known of each, as columns."""

    entries: tuple[ShardEntry, ...]
    place: dict[str, int]
    tokens: Longs
    values: Longs
    heard: NDArray[np.bool_]
    told: Longs
    """The connection that was told that its token is known."""
    holders: NDArray[Any]
    counters: list[dict[str, int]]
    shares: dict[float, Longs] = field(default_factory=dict)

    @staticmethod
    def silent(entries: tuple[ShardEntry, ...]) -> Tiles:
        """Tiles of which nobody has reported anything."""
        entries = tuple(sorted(entries, key=lambda entry: entry.range.lo))
        count = len(entries)
        return Tiles(
            entries=entries,
            place={entry.shard: place for place, entry in enumerate(entries)},
            tokens=np.fromiter((entry.token for entry in entries), np.int64, count),
            values=np.full(count, MIN_TIME, np.int64),
            heard=np.zeros(count, np.bool_),
            told=np.full(count, _NOBODY, np.int64),
            holders=np.full(count, "", object),
            counters=[{} for _ in range(count)],
        )

    def share(self, share: float) -> Longs:
        """What is known of each shard for a percentile watermark."""
        if share not in self.shares:
            self.shares[share] = np.full(len(self.entries), MIN_TIME, np.int64)
        return self.shares[share]

    def inherit(self, old: Tiles) -> None:
        """Carry over what was known under an older table: exactly for a range that stays, as a bound otherwise."""
        first = 0
        for place, entry in enumerate(self.entries):
            while first < len(old.entries) and old.entries[first].range.hi <= entry.range.lo:
                first += 1
            last = first
            while last < len(old.entries) and old.entries[last].range.lo < entry.range.hi:
                last += 1
            if first < last:
                self._inherit_value(place, old, first, last)
            before = old.place.get(entry.shard)
            if before is not None:
                self._inherit_name(place, old, before)

    def _inherit_value(self, place: int, old: Tiles, first: int, last: int) -> None:
        lowest = first + int(old.values[first:last].argmin())
        self.values[place] = old.values[lowest]
        self.heard[place] = old.heard[first:last].all()
        for share, column in old.shares.items():
            self.share(share)[place] = column[first:last].min()
        same = old.entries[lowest].shard == self.entries[place].shard
        self.holders[place] = old.holders[lowest] if same else f"taken over from {old.entries[lowest].shard}"

    def _inherit_name(self, place: int, old: Tiles, before: int) -> None:
        self.counters[place] = old.counters[before]
        if old.tokens[before] == self.tokens[place]:
            self.told[place] = old.told[before]


@dataclass(frozen=True, slots=True)
class _Waiting:
    connection: int
    report: ShardReport


class NodeState:
    """All that the service knows of one node."""

    def __init__(self) -> None:
        self.version = -1
        self.tiles = Tiles.silent(())
        self.complete = False
        self.published: int | None = None
        self.published_shares: dict[float, int] = {}
        self.stale_reports = 0
        self.lower_reports = 0
        self._waiting: dict[str, _Waiting] = {}
        self._touched = False

    def table_changed(self, table: RangeTable) -> dict[int, dict[str, int]]:
        """Follow the table unless it is old; returns the tokens to answer, by connection."""
        if table.version <= self.version:
            return {}
        self.version = table.version
        tiles = Tiles.silent(table.shards)
        tiles.inherit(self.tiles)
        self.tiles = tiles
        self._touch()
        waiting, self._waiting = self._waiting, {}
        answers: dict[int, dict[str, int]] = {}
        by_connection: dict[int, list[ShardReport]] = defaultdict(list)
        for waited in waiting.values():
            by_connection[waited.connection].append(waited.report)
        for connection, reports in by_connection.items():
            answers[connection] = self.reported(connection, ReportColumns.of(reports))
        return answers

    def reported(self, connection: int, reports: ReportColumns) -> dict[str, int]:
        """Take reports of one connection; returns the tokens that it must be told are known."""
        tiles = self.tiles
        places = np.fromiter((tiles.place.get(shard, -1) for shard in reports.shards), np.int64, len(reports.shards))
        placed = places >= 0
        if not placed.all():
            self._wait(connection, reports.where(~placed))
            reports, places = reports.where(placed), places[placed]
        return self._judge(connection, reports, places)

    def _judge(self, connection: int, reports: ReportColumns, places: Longs) -> dict[str, int]:
        tokens = self.tiles.tokens[places]
        current = reports.tokens == tokens
        if not current.all():
            ahead = reports.tokens > tokens
            self._wait(connection, reports.where(ahead))
            self.stale_reports += int(np.count_nonzero(reports.tokens < tokens))
            reports, places = reports.where(current), places[current]
        if not len(places):
            return {}
        self._take(reports, places)
        return self._answers(connection, reports, places)

    def _wait(self, connection: int, reports: ReportColumns) -> None:
        for place in range(len(reports.shards)):
            report = reports.row(place)
            waited = self._waiting.get(report.shard)
            if waited is None and len(self._waiting) >= _MAX_WAITING:
                continue  # only a flood of made-up names gets here: it must not fill the memory
            if waited is None or waited.report.token <= report.token:
                if waited is not None and waited.report.token == report.token and not report.counters:
                    report = replace(report, counters=waited.report.counters)
                self._waiting[report.shard] = _Waiting(connection, report)

    def _take(self, reports: ReportColumns, places: Longs) -> None:
        tiles = self.tiles
        idle = places[tiles.values[places] == IDLE_TIME]
        tiles.values[idle] = MIN_TIME
        for column in tiles.shares.values():
            column[idle] = MIN_TIME
        self.lower_reports += int(np.count_nonzero(reports.watermarks < tiles.values[places]))
        np.maximum.at(tiles.values, places, reports.watermarks)
        for share, said in reports.shares.items():
            np.maximum.at(tiles.share(share), places, said)
        tiles.heard[places] = True
        tiles.holders[places] = reports.holders
        for place, totals in reports.counters.items():
            tiles.counters[places[place]].update(totals)
        self._touch()

    def _answers(self, connection: int, reports: ReportColumns, places: Longs) -> dict[str, int]:
        unanswered = np.flatnonzero(self.tiles.told[places] != connection)
        self.tiles.told[places[unanswered]] = connection
        return {reports.shards[place]: int(reports.tokens[place]) for place in unanswered.tolist()}

    def _touch(self) -> None:
        self._touched = True
        self.complete = self.complete or (len(self.tiles.entries) > 0 and bool(self.tiles.heard.all()))

    def publish(self) -> int | None:
        """The node's watermark (µs) if it rose since the last call, else None. Silent until the tiling is complete."""
        if not (self._touched and self.complete):
            return None
        self._touched = False
        live = self.tiles.values[self.tiles.values != IDLE_TIME]
        if not len(live):
            return None
        lowest = int(live.min())
        if self.published is not None and lowest <= self.published:
            return None
        self.published = lowest
        return lowest

    def publish_shares(self) -> dict[float, int]:
        """The percentile watermarks (µs) that rose since the last call, by share."""
        if not self.complete:
            return {}
        live, risen = self.tiles.values != IDLE_TIME, {}
        for share, column in self.tiles.shares.items():
            values = np.sort(column[live])
            if len(values):
                passed = int(values[len(values) - wanted(share, len(values))])
                if passed > self.published_shares.get(share, MIN_TIME):
                    risen[share] = self.published_shares[share] = passed
        return risen

    def totals(self) -> Mapping[str, int]:
        """The counters, summed over the shards of the table."""
        sums: dict[str, int] = defaultdict(int)
        for counters in self.tiles.counters:
            for name, total in counters.items():
                sums[name] += total
        return sums
