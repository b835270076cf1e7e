"""The watermark of one node, from the reports of its shards.

All rules about the validity of a report are in this module.

- Only reports of the owner, under the token of the **range table**, count. Reports with an older
  token come from a zombie, which ignores the holds of its successor; they are refused.
- A report with a newer token than the table seen here **waits** for the newer table, because the
  table watch can lag behind the owners. Its answer waits, too, and until then the owner acks
  nothing. The new table also shows which shards lost their ranges to the new one. Before it
  arrives, a zombie of one of them could still raise the watermark above records that the new owner
  has acked.
- A **number** stands for a shard under a token, as defined by the same connection. A report by
  number counts exactly like one that is spelled out (``session_directory.py``).
- The **value** of a shard is its highest reported watermark. A shard without an owner keeps its
  last value. A shard with a new range starts from the lowest value of the shards that had the range
  before.
- A source shard without live input reports IDLE_TIME, and the time up to which silence has moved
  it. It is not counted until it reports a time again, which may then be lower. If all shards are
  idle, the one furthest ahead counts, as among the partitions of one shard, so that the
  distribution of partitions over shards does not matter. A published watermark never falls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from millwheel.control.injector.events import Longs, ReportColumns
from millwheel.control.injector.range_index import NOWHERE, RangeIndex
from millwheel.control.injector.session_directory import SessionDirectory
from millwheel.core.model.failures import CallKind, Tally, has_failures, plain_counters, tallies_in
from millwheel.core.model.lease import Lease, Leases
from millwheel.core.model.percentiles import needed
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.errors import invariant

# reports of shards that no table has: bounds the memory that a flood of names takes
_MAX_WAITING = 1_000_000


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
        """Whether any shard has reported failed calls."""
        self._tallies_changed = False

    def table_changed(self, table: RangeTable) -> dict[int, dict[str, int]]:
        """Use the table unless it is outdated. Returns the tokens to answer, by connection."""
        if table.version <= self.version:
            return {}
        # Reports that wait are for this table: under an older one they would count for a zombie.
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

    def reported(
        self, connection: int, reports: ReportColumns, numbers: Longs | None = None
    ) -> dict[str, int]:
        """Take reports of one connection. Returns the tokens to confirm to it.

        From now on ``numbers`` stand for these shards under these tokens, on this connection.
        """
        rows = self.index.find(reports.shards)
        valid = self.index.valid_rows(rows, reports.tokens)
        if numbers is not None:
            self._directory(connection).name(numbers, reports, valid)
        current = valid != NOWHERE
        if not current.all():
            self._doubt(connection, reports.where(~current), rows[~current])
            reports, valid = reports.where(current), valid[current]
        if not len(valid):
            return {}
        self._take(valid, reports.watermarks)
        self._take_words(valid, reports)
        return self._answers(connection, valid)

    def reported_by_number(
        self, connection: int, numbers: Longs, watermarks: Longs
    ) -> dict[str, int]:
        """As if the shards had been spelled out again. Numbers that the connection has not defined
        are refused."""
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
        """Reports that do not count under the current table: newer ones wait, older ones are
        refused."""
        ahead = rows == NOWHERE
        present = np.flatnonzero(~ahead)
        # An older report is a zombie's. If it were kept, it would count once its shard leaves the
        # table.
        ahead[present] = Leases(self.index.tokens[rows[present]]).are_behind(
            reports.tokens[present]
        )
        self.stale_reports += int(np.count_nonzero(~ahead))
        self._wait(connection, reports.where(ahead))

    def _wait(self, connection: int, reports: ReportColumns) -> None:
        for number in range(len(reports.shards)):
            report = reports.row(number)
            waited = self._waiting.get(report.shard)
            if waited is None and len(self._waiting) >= _MAX_WAITING:
                continue  # only a flood of invented names gets here: it must not fill the memory
            if waited is not None:
                lease = Lease(waited.report.token)
                if lease.outlived(report.token):
                    # a zombie would displace the report of its successor, before the table names it
                    continue
                if lease.admits(report.token) and not report.counters:
                    report = replace(report, counters=waited.report.counters)
            self._waiting[report.shard] = _Waiting(connection, report)

    def _take(self, rows: Longs, watermarks: Longs) -> None:
        self.lower_reports += self.index.rise(rows, watermarks)
        self._touch()

    def _take_words(self, rows: Longs, reports: ReportColumns) -> None:
        index = self.index
        index.idle[rows] = reports.idle
        for share, watermarks in reports.shares.items():
            np.maximum.at(index.share(share), rows, watermarks)
        index.holders[rows] = reports.holders
        for number, totals in reports.counters.items():
            counters = index.counters[rows[number]]
            if self.fails or has_failures(totals):
                self.fails = self._tallies_changed = True
                for name in counters.keys() - plain_counters(counters).keys():
                    del counters[name]
            counters.update(totals)

    def _answers(self, connection: int, rows: Longs) -> dict[str, int]:
        index = self.index
        unanswered = rows[index.confirmed_to[rows] != connection]
        index.confirmed_to[unanswered] = connection
        return {index.entries[row].shard: index.entries[row].token for row in unanswered.tolist()}

    def _touch(self) -> None:
        self._touched = True
        self.complete = self.complete or (
            len(self.index.entries) > 0 and bool(self.index.reported.all())
        )

    def publish(self) -> int | None:
        """The node's watermark (µs) if it rose since the last call, else None. None until all
        ranges have reported."""
        if not (self._touched and self.complete):
            return None
        self._touched = False
        lowest = self.index.lowest_above(self.published)
        if lowest is not None:
            # Workers have acted on the published watermark: windows have fired, state is gone.
            invariant(
                self.published is None or lowest > self.published,
                f"the watermark would fall from {self.published} to {lowest}",
            )
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
        """Tallies of calls over all shards, if some calls failed."""
        return tallies_in(self.totals()) if self.fails else {}

    def publish_tallies(self) -> dict[CallKind, Tally] | None:
        """The tallies, if a report may have changed them since the last call."""
        if not self._tallies_changed:
            return None
        self._tallies_changed = False
        return self.tallies()

    def validate(self) -> None:
        """Raise InvariantError unless the tree of reports holds together. For tests: it looks at
        all shards."""
        index = self.index
        index.validate()
        for directory in self._directories.values():
            directory.validate(index, self.version)
        reported = bool(len(index.entries)) and bool(index.reported.all())
        invariant(
            self.complete or not reported, "all shards have reported, but the node is not complete"
        )
        invariant(
            self.published is None or self.complete,
            f"{self.published} was published of an incomplete node",
        )
        for shard, waited in self._waiting.items():
            row = index.row_of.get(shard, NOWHERE)
            ahead = row == NOWHERE or Lease(int(index.tokens[row])).is_behind(waited.report.token)
            invariant(
                ahead,
                f"a report of {shard} under token {waited.report.token} waits for a table that is"
                " here",
            )

    def totals(self) -> Mapping[str, int]:
        """The counters, summed over the shards of the table."""
        sums: dict[str, int] = defaultdict(int)
        for counters in self.index.counters:
            for name, total in counters.items():
                sums[name] += total
        return sums
