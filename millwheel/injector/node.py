"""The watermark of one node, from the reports of its shards.

All rules about the validity of a report are in this module.

- Only reports of the owner, under the token of the **range table**, count. An older token belongs to a zombie, which
  does not know what its successor holds; its reports are refused.
- A report ahead of the table seen here (the table watch lags behind the owners) **waits** for that table, and so does
  its answer, without which its owner acks nothing. Until the table says which shards lost their ranges to the new
  one, zombies of any of them could still raise the watermark over what the new owner has acked.
- A **number** stands for a shard under a token, as the same connection has named it. A report by number counts exactly
  as it would spelled out (``session_directory.py``).
- The **value** of a shard is the highest watermark reported. A shard without owner keeps its last one; a shard with a
  new range starts from the lowest of the shards that had it before.
- A shard of a source that has no live input reports IDLE_TIME, and how far silence has moved it: it counts for nothing
  until it reports a time again, which may then be lower. If all are idle, the one that is furthest counts, as among the
  partitions of one shard: where they lie must not matter. What was published never falls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from millwheel.core.model.failures import CallKind, Tally, has_failures, plain_counters, tallies_in
from millwheel.core.model.lease import Lease, Leases
from millwheel.core.model.percentiles import needed
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.injector.events import Longs, ReportColumns
from millwheel.injector.range_index import NOWHERE, RangeIndex
from millwheel.injector.session_directory import SessionDirectory

_MAX_WAITING = 1_000_000  # reports of shards that no table has: bounds what a flood of names takes


@dataclass(frozen=True, slots=True)
class _Waiting:
    connection: int
    report: ShardReport


class NodeState:
    """The service's state of one node."""

    def __init__(self) -> None:
        self.version = -1
        self.index = RangeIndex.silent(())
        self.complete = False
        self.published: int | None = None
        self.published_shares: dict[float, int] = {}
        self.stale_reports = 0
        self.lower_reports = 0
        self._waiting: dict[str, _Waiting] = {}
        self._directories: dict[int, SessionDirectory] = {}
        self._touched = False
        self.fails = False
        """Whether any shard has reported calls that failed."""
        self._tallies_changed = False

    def table_changed(self, table: RangeTable) -> dict[int, dict[str, int]]:
        """Follow the table unless it is old; returns the tokens to answer, by connection."""
        if table.version <= self.version:
            return {}
        self.version = table.version
        index = RangeIndex.silent(table.shards)
        index.inherit(self.index)
        self.index = index
        self._touch()
        waiting, self._waiting = self._waiting, {}
        answers: dict[int, dict[str, int]] = {}
        by_connection: dict[int, list[ShardReport]] = defaultdict(list)
        for waited in waiting.values():
            by_connection[waited.connection].append(waited.report)
        for connection, reports in by_connection.items():
            answers[connection] = self.reported(connection, ReportColumns.of(reports))
        return answers

    def reported(self, connection: int, reports: ReportColumns, numbers: Longs | None = None) -> dict[str, int]:
        """Take reports of one connection; returns the tokens that it must be told are known.

        From now on ``numbers`` stand for these shards under these tokens, on this connection.
        """
        rows = self.index.find(reports.shards)
        believed = self.index.believed(rows, reports.tokens)
        if numbers is not None:
            self._directory(connection).name(numbers, reports, believed)
        current = believed != NOWHERE
        if not current.all():
            self._doubt(connection, reports.where(~current), rows[~current])
            reports, believed = reports.where(current), believed[current]
        if not len(believed):
            return {}
        self._take(believed, reports.watermarks)
        self._take_words(believed, reports)
        return self._answers(connection, believed)

    def reported_by_number(self, connection: int, numbers: Longs, watermarks: Longs) -> dict[str, int]:
        """As if the shards had been spelled out again. Numbers that the connection has not named are refused."""
        directory = self._directory(connection)
        named = directory.named(numbers)
        if not named.all():
            self.stale_reports += int(np.count_nonzero(~named))
            numbers, watermarks = numbers[named], watermarks[named]
        rows = directory.rows[numbers]
        current = rows != NOWHERE
        if not current.all():
            doubtful = directory.spelled_out(numbers[~current], watermarks[~current])
            self._doubt(connection, doubtful, self.index.find(doubtful.shards))
            rows, watermarks = rows[current], watermarks[current]
        if not len(rows):
            return {}
        self._take(rows, watermarks)
        return self._answers(connection, rows)

    def _directory(self, connection: int) -> SessionDirectory:
        directory = self._directories.get(connection)
        if directory is None:
            directory = self._directories[connection] = SessionDirectory(self.version)
        directory.look_up(self.index, self.version)
        return directory

    def disconnected(self, connection: int) -> None:
        """The connection has ended: forget its numbers."""
        self._directories.pop(connection, None)

    def _doubt(self, connection: int, reports: ReportColumns, rows: Longs) -> None:
        """Reports that do not count under the current table: newer ones wait, older ones are refused."""
        ahead = rows == NOWHERE
        known = np.flatnonzero(~ahead)
        # An older report would be a zombie's: kept, it would be believed once its shard leaves the table.
        ahead[known] = Leases(self.index.tokens[rows[known]]).are_behind(reports.tokens[known])
        self.stale_reports += int(np.count_nonzero(~ahead))
        self._wait(connection, reports.where(ahead))

    def _wait(self, connection: int, reports: ReportColumns) -> None:
        for number in range(len(reports.shards)):
            report = reports.row(number)
            waited = self._waiting.get(report.shard)
            if waited is None and len(self._waiting) >= _MAX_WAITING:
                continue  # only a flood of made-up names gets here: it must not fill the memory
            if waited is not None:
                lease = Lease(waited.report.token)
                if lease.outlived(report.token):
                    continue  # a zombie would put out what the heir has reported before the table names it
                if lease.admits(report.token) and not report.counters:
                    report = replace(report, counters=waited.report.counters)
            self._waiting[report.shard] = _Waiting(connection, report)

    def _take(self, rows: Longs, watermarks: Longs) -> None:
        self.lower_reports += self.index.rise(rows, watermarks)
        self._touch()

    def _take_words(self, rows: Longs, reports: ReportColumns) -> None:
        index = self.index
        index.idle[rows] = reports.idle
        for share, said in reports.shares.items():
            np.maximum.at(index.share(share), rows, said)
        index.holders[rows] = reports.holders
        for number, totals in reports.counters.items():
            known = index.counters[rows[number]]
            if self.fails or has_failures(totals):
                self.fails = self._tallies_changed = True
                for name in known.keys() - plain_counters(known).keys():
                    del known[name]
            known.update(totals)

    def _answers(self, connection: int, rows: Longs) -> dict[str, int]:
        index = self.index
        unanswered = rows[index.told[rows] != connection]
        index.told[unanswered] = connection
        return {index.entries[row].shard: index.entries[row].token for row in unanswered.tolist()}

    def _touch(self) -> None:
        self._touched = True
        self.complete = self.complete or (len(self.index.entries) > 0 and bool(self.index.heard.all()))

    def publish(self) -> int | None:
        """The node's watermark (µs) if it rose since the last call, else None. Silent until the tiling is complete."""
        if not (self._touched and self.complete):
            return None
        self._touched = False
        lowest = self.index.lowest_above(self.published)
        if lowest is not None:
            self.published = lowest
        return lowest

    def publish_shares(self) -> dict[float, int]:
        """The percentile watermarks (µs) that rose since the last call, by share."""
        if not self.complete:
            return {}
        live, silent_up_to, risen = self.index.values != IDLE_TIME, self.index.silent_up_to, {}
        for share, column in self.index.shares.items():
            passed = silent_up_to
            if passed is None:
                values = np.sort(column[live])
                passed = int(values[len(values) - needed(share, len(values))])
            if passed > self.published_shares.get(share, MIN_TIME):
                risen[share] = self.published_shares[share] = passed
        return risen

    def tallies(self) -> dict[CallKind, Tally]:
        """Tallies of calls over all shards, where some calls failed."""
        return tallies_in(self.totals()) if self.fails else {}

    def publish_tallies(self) -> dict[CallKind, Tally] | None:
        """The tallies, if a report may have changed them since the last call."""
        if not self._tallies_changed:
            return None
        self._tallies_changed = False
        return self.tallies()

    def totals(self) -> Mapping[str, int]:
        """The counters, summed over the shards of the table."""
        sums: dict[str, int] = defaultdict(int)
        for counters in self.index.counters:
            for name, total in counters.items():
                sums[name] += total
        return sums
