"""The report of a worker about divided keys: how its shards divide those of others, and the records
of its instances."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from millwheel.core import metrics as c
from millwheel.core.grouping.observations import Division, InstanceLoads, division_of
from millwheel.core.metrics import Figure
from millwheel.core.model.times import SECOND
from millwheel.engine.workers.loop.shard_handle import Served
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.sources.source import SourceOperator


class DividedKeys(msgspec.Struct, frozen=True):
    """Of all shards of a worker."""

    divisions: tuple[Division, ...] = ()
    loads: tuple[InstanceLoads, ...] = ()


def divided_keys(served: Iterable[Served], finals: Collection[str]) -> DividedKeys:
    """The current report. ``finals``: the nodes that merge accumulators."""
    shards = list(served)
    divisions = [division for each in shards for division in _divisions(each.shard)]
    loads = [
        _load(each)
        for each in shards
        if each.shard.instance_counts is not None or each.node in finals
    ]
    return DividedKeys(tuple(divisions), tuple(loads))


def _divisions(shard: Shard) -> Iterator[Division]:
    """The divisions of a shard: of a source's reads by partition, and of productions."""
    if isinstance(shard.operator, SourceOperator):
        for part in list(shard.operator.partitions.awake.values()):
            machines = {} if part.epochs is None else part.epochs.machines()
            yield from (
                division_of(node, part.partition.name, each) for node, each in machines.items()
            )
    for tables in shard.productions.instances.tables():
        yield from (
            division_of(node, shard.identity.shard, each)
            for node, each in tables.machines().items()
        )


def _load(served: Served) -> InstanceLoads:
    shard, counts = served.shard, served.shard.instance_counts
    records = {} if counts is None else counts.found()
    busy_s, produced = served.done.busy_us / SECOND, shard.meta.next_seq - 1
    return InstanceLoads(served.node, shard.identity.shard, records, busy_s, produced)


def figures_of_divided(served: Served) -> Iterator[Figure]:
    """The same of one shard, as metrics."""
    labels = (str(served.node), str(served.shard.identity.shard))
    if served.shard.instance_counts is not None:
        for instance, records in served.shard.instance_counts.found().items():
            yield Figure(c.INSTANCE_RECORDS, records, (*labels, str(instance)))
    for each in _divisions(served.shard):
        own_labels = (*labels, each.sender, each.node)
        yield Figure(c.GROUPING_EPOCH, each.epoch, own_labels)
        yield Figure(c.GROUPING_HOT_KEYS, len(each.hot), own_labels)
        yield Figure(
            c.GROUPING_HOTTEST, max((hot.share for hot in each.hot), default=0.0), own_labels
        )
        for instance, share in enumerate(each.shares):
            yield Figure(c.GROUPING_SHARE, share, (*own_labels, str(instance)))
        for instance, time_us in enumerate(each.times_us):
            if time_us is not None:
                yield Figure(c.GROUPING_TIME, time_us / SECOND, (*own_labels, str(instance)))
