"""Events of the watermark service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millwheel.core.model.names import NodeName, ShardName, Token
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import MIN_TIME
from millwheel.core.model.watermark import ShardReport, share_columns
from millwheel.errors import invariant

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReportColumns:
    """Reports of shards of one node, as columns of equal length.

    ``counters`` has only the reports with totals, by their index in the columns. ``shares`` are
    further columns, one for each share with a percentile watermark (MIN_TIME: not reported).
    ``idle`` is the time up to which silence has moved each idle shard.
    """

    shards: Sequence[ShardName]
    tokens: Longs
    watermarks: Longs
    holders: NDArray[Any]
    counters: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    shares: Mapping[float, Longs] = field(default_factory=dict)
    idle: Longs = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.idle):
            object.__setattr__(self, "idle", np.full(len(self.shards), MIN_TIME, np.int64))
        columns = (self.shards, self.tokens, self.watermarks, self.holders, self.idle)
        lengths = {len(column) for column in columns}
        lengths.update(map(len, self.shares.values()))
        invariant(len(lengths) == 1, f"report columns differ in length: {sorted(lengths)}")

    @staticmethod
    def of(reports: Sequence[ShardReport]) -> ReportColumns:
        """Reports as columns."""
        return ReportColumns(
            [report.shard for report in reports],
            np.array([report.token for report in reports], np.int64),
            np.array([report.watermark_us for report in reports], np.int64),
            np.array([report.holder for report in reports], object),
            {index: report.counters for index, report in enumerate(reports) if report.counters},
            share_columns([report.shares for report in reports]),
            np.array([report.idle_us for report in reports], np.int64),
        )

    def row(self, index: int) -> ShardReport:
        """One report, without its latencies."""
        return ShardReport(
            self.shards[index],
            Token(int(self.tokens[index])),
            int(self.watermarks[index]),
            str(self.holders[index]),
            self.counters.get(index, {}),
            shares={share: int(column[index]) for share, column in self.shares.items()},
            idle_us=int(self.idle[index]),
        )

    def where(self, mask: NDArray[np.bool_]) -> ReportColumns:
        """The reports that ``mask`` selects, in order."""
        indexes = np.flatnonzero(mask).tolist()
        counters = self.counters
        if counters:
            counters = {new: counters[old] for new, old in enumerate(indexes) if old in counters}
        shards = self.shards
        return ReportColumns(
            [shards[index] for index in indexes],
            self.tokens[mask],
            self.watermarks[mask],
            self.holders[mask],
            counters,
            {share: column[mask] for share, column in self.shares.items()},
            self.idle[mask],
        )


@dataclass(frozen=True, slots=True)
class Connected:
    """A worker opened a stream. ``connection`` is positive and never used again."""

    connection: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A stream has ended. Reports of its shards stay valid."""

    connection: int


@dataclass(frozen=True, slots=True)
class RangesChanged:
    """A range table of a node. The version may be outdated."""

    table: RangeTable


@dataclass(frozen=True, slots=True)
class ReportsArrived:
    """A worker reported shards of one node, and latencies that it sampled at sinks.

    ``numbers`` (one per report, or none) stand for these shards, tokens and holders in later
    messages of this connection.
    """

    connection: int
    node: NodeName
    reports: ReportColumns
    latencies_ms: Sequence[float] = ()
    numbers: Longs | None = None

    def __post_init__(self) -> None:
        right = self.numbers is None or len(self.numbers) == len(self.reports.shards)
        invariant(right, "as many numbers as reports are needed, or none")


@dataclass(frozen=True, slots=True)
class NumbersReported:
    """Watermarks of shards of one node, by numbers that the connection has defined, in columns of
    equal length."""

    connection: int
    node: NodeName
    numbers: Longs
    watermarks: Longs

    def __post_init__(self) -> None:
        invariant(
            len(self.numbers) == len(self.watermarks),
            "columns of numbers and watermarks differ in length",
        )


@dataclass(frozen=True, slots=True)
class PublishDue:
    """It is time to broadcast the watermarks that rose, once for all reports that came before."""


Event = Connected | Disconnected | RangesChanged | ReportsArrived | NumbersReported | PublishDue
"""All events of the watermark service."""
