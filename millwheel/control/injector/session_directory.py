"""The session directory: the shard of a node for which each number of a connection stands, and its
row in the table.

A number means exactly the same as its shard, token and holder, spelled out. So the row of a number
is kept only as long as the table does not change. In a new table the token may have become a
zombie's, so all rows are looked up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millwheel.control.injector.events import Longs, ReportColumns
from millwheel.control.injector.range_index import NOWHERE, RangeIndex
from millwheel.errors import invariant

_NO_TOKEN = -1  # Fixed: a number that is not defined


def _longs() -> Longs:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class SessionDirectory:
    """Columns by number. ``version`` is that of the table in which the rows were looked up."""

    version: int
    shards: NDArray[Any] = field(default_factory=lambda: np.empty(0, object))
    holders: NDArray[Any] = field(default_factory=lambda: np.empty(0, object))
    tokens: Longs = field(default_factory=_longs)
    rows: Longs = field(default_factory=_longs)

    def name(self, numbers: Longs, reports: ReportColumns, rows: Longs) -> None:
        """From now on the numbers stand for these reports, which are at ``rows`` of the current
        table."""
        if not len(numbers):
            return
        # A single row would stand for all of them, and the reports of all raise one shard.
        invariant(
            len(numbers) == len(rows) == len(reports.tokens),
            f"{len(numbers)} numbers are given to {len(rows)} reports",
        )
        self._grow(int(numbers.max()) + 1 - len(self.tokens))
        self.shards[numbers] = reports.shards
        self.holders[numbers] = reports.holders
        self.tokens[numbers] = reports.tokens
        self.rows[numbers] = rows

    def _grow(self, more: int) -> None:
        if more > 0:
            more = max(more, len(self.tokens))
            self.shards = np.append(self.shards, np.full(more, "", object))
            self.holders = np.append(self.holders, np.full(more, "", object))
            self.tokens = np.append(self.tokens, np.full(more, _NO_TOKEN, np.int64))
            self.rows = np.append(self.rows, np.full(more, NOWHERE, np.int64))

    def look_up(self, index: RangeIndex, version: int) -> None:
        """Find the rows in the current table, unless that has been done."""
        if self.version != version:
            # By the rows of an older table, reports of a zombie would count again.
            invariant(version > self.version, f"table {version} follows {self.version}")
            self.rows = index.valid_rows(index.find(self.shards.tolist()), self.tokens)
            self.version = version

    def validate(self, index: RangeIndex, version: int) -> None:
        """Raise InvariantError unless the numbers stand for rows of the present table. For
        tests."""
        if self.version == version:
            rows = index.valid_rows(index.find(self.shards.tolist()), self.tokens)
            invariant(
                np.array_equal(self.rows, rows),
                f"numbers stand for the rows {self.rows}, shards are at {rows}",
            )

    def named(self, numbers: Longs) -> NDArray[np.bool_]:
        """A mask of the numbers that are defined."""
        mask = numbers < len(self.tokens)
        mask[mask] = self.tokens[numbers[mask]] != _NO_TOKEN
        return mask

    def spelled_out(self, numbers: Longs, watermarks: Longs) -> ReportColumns:
        """The reports for which defined numbers stand."""
        return ReportColumns(
            self.shards[numbers].tolist(), self.tokens[numbers], watermarks, self.holders[numbers]
        )
