"""The session directory: which shard of a node each number of a connection stands for, and its row in the table.

A number is worth exactly what its shard, token and holder would be, spelled out again. So the row of a number is
kept only while the table is the one in which it was looked up: under another table, under which a token may have
become a zombie's, all of them are looked up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millwheel.injector.events import Longs, ReportColumns
from millwheel.injector.range_index import NOWHERE, RangeIndex

_NO_TOKEN = -1  # Fixed: a number that was not given


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
        """The numbers stand for these reports now, which the current table has at ``rows``."""
        if not len(numbers):
            return
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
        """Find the rows in the current table, unless that was done."""
        if self.version != version:
            self.rows = index.believed(index.find(self.shards.tolist()), self.tokens)
            self.version = version

    def named(self, numbers: Longs) -> NDArray[np.bool_]:
        """Which of the numbers stand for anything."""
        known = numbers < len(self.tokens)
        known[known] = self.tokens[numbers[known]] != _NO_TOKEN
        return known

    def spelled_out(self, numbers: Longs, watermarks: Longs) -> ReportColumns:
        """The reports that named numbers stand for."""
        return ReportColumns(self.shards[numbers].tolist(), self.tokens[numbers], watermarks, self.holders[numbers])
