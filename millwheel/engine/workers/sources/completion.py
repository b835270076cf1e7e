"""The measurements of a source about the instances that its records go to, for the next tables, and
how far it reads ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from millwheel.core.grouping.catalogue import RULES
from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured, Network
from millwheel.core.model.keys import Key
from millwheel.core.model.names import NodeName, ShardName
from millwheel.engine.workers.delivery.instances import Measure
from millwheel.engine.workers.delivery.lane_times import Completed, LaneTimes
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.delivery.routing import TableRouter

AHEAD_US = 1_000_000
"""A read is divided by the table of its time. So no more records wait for consumers than they
process in about this time: otherwise all of those ahead would still go to a machine that has become
slow."""
_READS = 2
"""How many reads lie between a partition and its consumers: while they process one, another is on
its way. With shorter ones, the fixed cost of a delivery would be most of the measurement."""
_LEAST = 512
"""This many records may always wait: on a machine so busy that few take as long as many, fewer
would only make it slower."""

ShardOf = Callable[[NodeName, Key], ShardName | None]


@dataclass(slots=True)
class CompletionTimes:
    """The means of one partition since its last table, and how far the owners of shards are. An
    instance has those of the shard that it lies in.

    Readings of the clock go into tables alone, and a table is committed before it is used: so they
    never decide anything twice."""

    times: LaneTimes
    shard_of: ShardOf
    distance: Callable[[ShardName], Network]
    _before: dict[ShardName, Completed] = field(default_factory=dict)

    def take(self, rules: Mapping[str, Rule]) -> dict[str, Measured]:
        """By node."""
        means = {
            shard: _means(sums, self._before.get(shard, Completed()))
            for shard, sums in self.times.sums.items()
        }
        self._before = dict(self.times.sums)
        measured = {}
        for node, rule in rules.items():
            # Where an instance lies depends on the last part of a key alone.
            shards = [
                self.shard_of(NodeName(node), (instance,)) for instance in range(rule.instances)
            ]
            times = [
                means.get(shard, (None, None)) if shard is not None else (None, None)
                for shard in shards
            ]
            network = tuple(
                Network.HOST if shard is None else self.distance(shard) for shard in shards
            )
            measured[node] = Measured(
                tuple(whole for whole, _ in times), tuple(alone for _, alone in times), network
            )
        return measured


def completion_of(
    outbox: Outbox, router: TableRouter, rules: Mapping[str, Rule]
) -> Callable[[], CompletionTimes] | None:
    """The function that makes the measurements of the instances that the records of a shard go to,
    if any rule uses them."""
    if not any(RULES[rule.grouping].goes_by_times for rule in rules.values()):
        return None
    if outbox.times is None:
        outbox.times = LaneTimes()
    return partial(
        CompletionTimes, outbox.times, router.shard_of, lambda shard: router.distance(shard)
    )


def measures_of(outbox: Outbox, router: TableRouter, rules: Mapping[str, Rule]) -> Measure:
    """The same, taken anew with each call."""
    completion = completion_of(outbox, router, rules)
    return dict if completion is None else partial(completion().take, rules)


def _means(now: Completed, before: Completed) -> tuple[float | None, float | None]:
    records = now.records - before.records
    if not records:
        return None, None
    return (now.completion_us - before.completion_us) / records, (
        now.alone_us - before.alone_us
    ) / records


@dataclass(slots=True)
class ReadAhead:
    """``most`` records may wait for the consumers of one partition. That is doubled while they
    process them in less than half of the time, and reduced in proportion when they take longer.

    >>> ahead = ReadAhead()
    >>> ahead.has_room(511), ahead.has_room(512), ahead.share
    (True, False, 256)
    >>> ahead.applied(512, sent_at_us=0, now_us=100_000)
    >>> ahead.most
    1024
    """

    most: int = _LEAST
    _changed_at_us: int = 0

    @property
    def share(self) -> int:
        """How many records one read may have."""
        return max(self.most // _READS, 1)

    def has_room(self, waiting: int) -> bool:
        """Whether more may be read while ``waiting`` records wait for consumers."""
        return waiting < self.most

    def applied(self, waited: int, sent_at_us: int, now_us: int) -> None:
        """Note an applied read; when it was sent, ``waited`` records waited, with its own."""
        # Records that were sent before the last change do not count.
        if sent_at_us < self._changed_at_us:
            return
        took_us = max(now_us - sent_at_us, 1)
        if took_us > AHEAD_US:
            most = max(self.most * AHEAD_US // took_us, _LEAST)
        elif took_us < AHEAD_US // 2 and 2 * waited >= self.most:
            most = 2 * self.most
        else:
            return
        self.most, self._changed_at_us = most, now_us
