"""Low watermarks as values: a shard's report, its hold, and the watermarks of the nodes that feed a
node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.percentiles import READ, Shares, share_name
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, idle_progress


@dataclass(frozen=True, slots=True)
class WatermarkHold:
    """A time (µs) that the watermark may not pass, with the reason in words."""

    watermark_us: int
    holder: str


def lowest(holds: Iterable[WatermarkHold]) -> WatermarkHold:
    """The hold that counts; the first of equals, and the end of time when nothing holds."""
    return min(holds, key=lambda hold: hold.watermark_us, default=WatermarkHold(MAX_TIME, ""))


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The report of a shard's owner to the watermark service.

    ``counters`` are totals of the shard's *durable* commits, all of them or none when they did not
    change. ``latencies_ms`` are the samples taken since the last report. ``shares`` are the inputs
    of percentile watermarks, by share (core/model/percentiles.py). ``idle_us``: how far silence has
    moved a shard that reports IDLE_TIME.
    """

    shard: ShardName
    token: Token
    watermark_us: int
    holder: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    latencies_ms: Sequence[float] = ()
    shares: Mapping[float, int] = field(default_factory=dict)
    idle_us: int = MIN_TIME


def share_columns(rows: Sequence[Mapping[float, int]]) -> dict[float, NDArray[np.int64]]:
    """The value (µs) of each report for each share, as columns by share; MIN_TIME where it has
    none."""
    names = sorted({share for row in rows for share in row})
    return {
        share: np.array([row.get(share, MIN_TIME) for row in rows], np.int64) for share in names
    }


_OF_READ = share_name("", READ)


class Watermarks:
    """Published watermarks of nodes, as one worker has received them. They only rise, even when
    another injector takes over."""

    def __init__(self) -> None:
        self._by_node: dict[str, int] = {}
        self._read: set[str] = set()
        """Nodes that have ended, and sources that have read all."""

    def rise(self, published: Mapping[str, int]) -> dict[str, int]:
        """Take the published watermarks; returns the nodes whose watermark is higher than
        before."""
        risen = {
            node: us for node, us in published.items() if us > self._by_node.get(node, MIN_TIME)
        }
        self._by_node.update(risen)
        if MAX_TIME in risen.values():
            ended = (node for node, us in risen.items() if us == MAX_TIME)
            self._read.update(node.removesuffix(_OF_READ) for node in ended)
        return risen

    def lowest_of(self, nodes: Iterable[str]) -> int:
        """The input watermark of a consumer fed by ``nodes``: MIN_TIME while one is silent,
        MAX_TIME for none."""
        watermarks = self._by_node
        return min((watermarks.get(node, MIN_TIME) for node in nodes), default=MAX_TIME)

    def are_read(self, sources: Iterable[str]) -> bool:
        """Whether all that these sources will ever read has been read."""
        return self._read.issuperset(sources)

    def furthest_of(self, nodes: Iterable[str]) -> int:
        """The highest time that one of ``nodes`` has reached; MIN_TIME if none has one, because it
        has not begun or has ended."""
        times = (self._by_node.get(node, MIN_TIME) for node in nodes)
        return max((at for at in times if at < IDLE_TIME), default=MIN_TIME)

    def raise_shares(
        self, percentiles: dict[float, int], shares: Shares, feeders: Sequence[str]
    ) -> bool:
        """Bring the percentile watermarks of a consumer's input, by share, up to date. True when
        one has risen."""
        risen = False
        for share in shares:
            fresh = self.lowest_of(share_name(feeder, share) for feeder in feeders)
            if fresh > percentiles.get(share, MIN_TIME):
                percentiles[share], risen = fresh, True
        return risen


@dataclass(slots=True)
class Fellows:
    """The watermark of the furthest stream that meets this one further down. A silent stream holds
    none of them back: its watermark is at least theirs, as among the partitions of one stream.
    Otherwise a stream that never has a record, or whose last one is a month old, would hold unions,
    joins and enrichments for ever.

    ``names`` are the others, as nodes; ``began_us`` is when this one was first looked at. Once none
    of them has a time any more, because all have ended, the wall clock goes on from the last
    one."""

    node: str = ""
    names: frozenset[str] = frozenset()
    began_us: int = 0
    _at_us: int = MIN_TIME
    _alone_since_us: int | None = None

    def update(self, watermarks: Watermarks, now_us: int) -> bool:
        """Some watermarks may have risen. True if this one may have, too, should it be silent."""
        before = self._at_us, self._alone_since_us
        if self.names:
            others = watermarks.furthest_of(self.names)
            own = watermarks.furthest_of((self.node,))
            self.advance(max(others, own), others == MIN_TIME, now_us)
        return (self._at_us, self._alone_since_us) != before

    def advance(self, at_us: int, alone: bool, now_us: int) -> None:
        """The furthest published watermark, this stream's own included, is ``at_us``. ``alone``: no
        other one has a time."""
        # Not below what was reached: else two silent streams that follow each other would both
        # start anew, for ever.
        if at_us > self.reached_us(now_us):
            self._at_us, self._alone_since_us = at_us, None
        if alone and self._alone_since_us is None and self._at_us > MIN_TIME:
            self._alone_since_us = now_us

    def reached_us(self, now_us: int) -> int:
        """The time up to which a stream that is silent as a whole lets event time pass."""
        if self._alone_since_us is None:
            return self._at_us
        return self._at_us + idle_progress(max(now_us - self._alone_since_us, 0))


@dataclass(slots=True)
class ReadFirst:
    """Of a node: the sources of tables that are read to their end first; ``left`` are those whose
    end has not been published yet.

    The watermark of a source is at the end of time once all that it has read is durable where it
    goes, so a node that receives it finds the whole table. Each process receives it anew.

    >>> first, watermarks = ReadFirst(frozenset({"source.sides"})), Watermarks()
    >>> first.update(watermarks), first.left
    (False, ('source.sides',))
    >>> _ = watermarks.rise({"source.sides": MAX_TIME})
    >>> first.update(watermarks), first.left
    (True, ())
    """

    names: frozenset[str] = frozenset()
    left: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.left = tuple(sorted(self.names))

    def update(self, watermarks: Watermarks) -> bool:
        """Some watermarks may have risen. True if fewer are left than before."""
        before = self.left
        if before:
            self.left = tuple(name for name in before if watermarks.lowest_of((name,)) < MAX_TIME)
        return self.left != before
