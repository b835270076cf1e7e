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

    ``counters`` holds only those reports that carry totals, by their place in the columns. ``shares`` are further
    columns, one for each share of which there is a percentile watermark (MIN_TIME: nothing was said). ``idle`` is how
    far silence has moved shards that are idle.
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
        """The columns of some rows."""
        return ReportColumns(
            [report.shard for report in reports],
            np.array([report.token for report in reports], np.int64),
            np.array([report.watermark_us for report in reports], np.int64),
            np.array([report.holder for report in reports], object),
            {place: report.counters for place, report in enumerate(reports) if report.counters},
            share_columns([report.shares for report in reports]),
            np.array([report.idle_us for report in reports], np.int64),
        )

    def row(self, place: int) -> ShardReport:
        """One report, without its latencies."""
        return ShardReport(
            self.shards[place],
            Token(int(self.tokens[place])),
            int(self.watermarks[place]),
            str(self.holders[place]),
            self.counters.get(place, {}),
            shares={share: int(column[place]) for share, column in self.shares.items()},
            idle_us=int(self.idle[place]),
        )

    def where(self, mask: NDArray[np.bool_]) -> ReportColumns:
        """The reports that ``mask`` selects, in order."""
        places = np.flatnonzero(mask).tolist()
        counters = self.counters
        if counters:
            counters = {new: counters[old] for new, old in enumerate(places) if old in counters}
        shards = self.shards
        return ReportColumns(
            [shards[place] for place in places],
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
    """A stream has ended. What its shards reported stays valid."""

    connection: int


@dataclass(frozen=True, slots=True)
class RangesChanged:
    """The range table of a node, in a version that may be outdated."""

    table: RangeTable


@dataclass(frozen=True, slots=True)
class ReportsArrived:
    """A worker reported shards of one node, and the latencies it sampled at sinks.

    ``numbers``, as many as there are reports, stand for these shards, tokens and holders in what comes after it on this
    connection.
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
    """Watermarks of shards of one node that the connection has named, by number, in columns of equal length."""

    connection: int
    node: NodeName
    numbers: Longs
    watermarks: Longs

    def __post_init__(self) -> None:
        invariant(len(self.numbers) == len(self.watermarks), "columns of numbers and watermarks differ in length")


@dataclass(frozen=True, slots=True)
class PublishDue:
    """The moment to broadcast what has risen. One moment serves all reports that came before it."""


Event = Connected | Disconnected | RangesChanged | ReportsArrived | NumbersReported | PublishDue
"""All events of the watermark service."""
