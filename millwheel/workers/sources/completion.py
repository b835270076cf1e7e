"""What a source measures of the instances that its records go to, for the next tables of groupings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured, Network
from millwheel.core.model.keys import Key
from millwheel.core.model.names import NodeName, ShardName
from millwheel.workers.delivery.lane_times import Completed, LaneTimes

ShardOf = Callable[[NodeName, Key], ShardName | None]


@dataclass(slots=True)
class CompletionTimes:
    """The means of one partition since its last table, and how far the owners of shards are. An instance has those of
    the shard that it lies in.

    Readings of the clock go into tables alone, and a table is committed before it is used: so they never decide
    anything twice."""

    times: LaneTimes
    shard_of: ShardOf
    distance: Callable[[ShardName], Network]
    _before: dict[ShardName, Completed] = field(default_factory=dict)

    def take(self, rules: Mapping[str, Rule]) -> dict[str, Measured]:
        """By node."""
        means = {shard: _means(sums, self._before.get(shard, Completed())) for shard, sums in self.times.sums.items()}
        self._before = dict(self.times.sums)
        found = {}
        for node, rule in rules.items():
            # Where an instance lies depends on the last part of a key alone.
            shards = [self.shard_of(NodeName(node), (instance,)) for instance in range(rule.instances)]
            mine = [means.get(shard, (None, None)) if shard is not None else (None, None) for shard in shards]
            network = tuple(Network.HOST if shard is None else self.distance(shard) for shard in shards)
            found[node] = Measured(tuple(whole for whole, _ in mine), tuple(alone for _, alone in mine), network)
        return found


def _means(now: Completed, before: Completed) -> tuple[float | None, float | None]:
    records = now.records - before.records
    if not records:
        return None, None
    return (now.completion_us - before.completion_us) / records, (now.alone_us - before.alone_us) / records
