"""Observations of groupings while they run: of each sender, and of the instances that get its
records."""

from __future__ import annotations

import msgspec

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.catalogue import COPIES
from millwheel.core.grouping.network import NetworkAware
from millwheel.core.grouping.tables import first_table
from millwheel.core.grouping.time_aware import probabilities

_KEY_CHARS = 60  # of a key that is shown


class HotKey(msgspec.Struct, frozen=True):
    """A hot key of the last window: its share of the records, and how many instances may get it
    now."""

    key: str
    share: float
    instances: int


class Division(msgspec.Struct, frozen=True):
    """How one sender, a partition or a shard, divides the keys of ``node`` at this moment.
    ``shares`` are p_i: the part of a divided key that is meant for each instance. ``times_us`` are
    t_i, the time of one record at each; empty for groupings that do not go by time, and before the
    first measurement. ``copies``: how many instances a key has that is not hot."""

    node: str
    sender: str
    grouping: str
    epoch: int
    hot: tuple[HotKey, ...]
    shares: tuple[float, ...]
    times_us: tuple[float | None, ...] = ()
    copies: int = 1


class InstanceLoads(msgspec.Struct, frozen=True):
    """The load of one shard of a divided node since its owner began: records by instance, and the
    time in its bundles. ``produced``: how many accumulators it has emitted, across owners. Of a
    shard where they are merged: that time, and its results."""

    node: str
    shard: str
    records: dict[int, int]
    busy_s: float
    produced: int


def division_of(node: str, sender: str, machine: Grouping) -> Division:
    """A sender's division, as its machine has it."""
    table = machine.table
    copies = COPIES.get(machine.name, 1) or table.instances
    hot = tuple(
        HotKey(repr(key)[:_KEY_CHARS], share, len(table.routes.get(key, ())) or copies)
        for key, share in machine.hottest
    )
    shares = probabilities(table.prices)
    return Division(
        node, sender, machine.name, table.epoch, hot, shares, _times_us(machine), copies
    )


def _times_us(machine: Grouping) -> tuple[float | None, ...]:
    """TAG goes by smoothed times, NAG by the weights that measured ones have left."""
    if isinstance(machine, NetworkAware):
        return machine.measured_us
    measured = (
        machine.goes_by_times
        and machine.table.prices != first_table(machine.table.instances).prices
    )
    return machine.table.prices if measured else ()
