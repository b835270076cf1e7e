"""Splits and merges of shards, on the way from one range table to the next. As pure as
``state.py``.

Both begin like a planned move: the plan is stored in the table; the owner stops, commits, has a
snapshot made and releases the shard. Then the shard has no owner and is *waiting*: its range goes
to new shards, with new names and higher tokens, that name it as their parent. If the owner dies
before the release, the next owner releases the shard instead. So all work in progress is in the
parent's last snapshot, and no journal has to be divided.

A plan is never taken back, because the owner may have stopped the shard already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, WorkerName, shard_parts
from millwheel.core.model.range_table import Parent, RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import invariant


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a shard in two; the upper half begins with the key hash ``at``."""

    node: NodeName
    shard: ShardName
    at: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one shard of two neighbours, the one with the lower keys first."""

    node: NodeName
    lower: ShardName
    upper: ShardName


Resharding = Split | Merge


def outlived(shards: Iterable[ShardName], tables: Mapping[NodeName, RangeTable]) -> list[ShardName]:
    """The shards whose snapshots can no longer be needed: their names were given, no table lists
    them as a shard, and none as the parent of a shard without a snapshot of its own.

    If this holds in a stored table, it holds in all later ones, because names are never reused. So
    the decision is right even if it is made from an old table.
    """
    return [shard for shard in shards if _is_outlived(shard, tables)]


def _is_outlived(shard: ShardName, tables: Mapping[NodeName, RangeTable]) -> bool:
    parts = shard_parts(shard)
    table = tables.get(parts[0]) if parts is not None else None
    if parts is None or table is None or parts[1] >= table.next_number:
        return False
    return all(
        shard != entry.shard and all(shard != p.shard for p in entry.parents)
        for entry in table.shards
    )


def fitted(requested: Resharding, grain: int) -> Resharding:
    """The split at the nearest multiple of ``grain``, which may lie outside the range: then there
    is none. A merge as it is."""
    if isinstance(requested, Merge):
        return requested
    return replace(requested, at=_nearest(requested.at, grain))


def _nearest(at: int, grain: int) -> int:
    return (at + grain // 2) // grain * grain


def refusal(
    requested: Resharding,
    tables: Mapping[NodeName, RangeTable],
    fixed: Mapping[NodeName, str],
    grain: int = 1,
) -> str:
    """Why a split or merge can never be made, "" when it can be, now or later. ``fixed`` gives the
    reasons of nodes that cannot be resharded; the node is cut at multiples of ``grain``."""
    table = tables.get(requested.node)
    if table is None:
        return (
            f"there is no node {requested.node}; there are"
            f" {', '.join(sorted(tables)) or 'none yet'}"
        )
    if requested.node in fixed:
        return f"the shards of {requested.node} cannot be split or merged: {fixed[requested.node]}"
    names = (
        [requested.shard] if isinstance(requested, Split) else [requested.lower, requested.upper]
    )
    entries = [table.entry(name) for name in names]
    for name, entry in zip(names, entries, strict=True):
        if entry is None:
            return (
                f"{requested.node} has no shard {name}; it has"
                f" {', '.join(e.shard for e in table.shards)}"
            )
        if entry.resharded:
            return f"{name} is being split or merged already"
    ranges = [entry.range for entry in entries if entry is not None]
    if isinstance(requested, Split):
        return _uncut(requested, ranges[0], grain)
    if ranges[0].hi != ranges[1].lo:
        return (
            f"{requested.upper} {ranges[1]} does not begin where {requested.lower} {ranges[0]} ends"
        )
    return ""


def _uncut(requested: Split, within: KeyRange, grain: int) -> str:
    """Why a range has no edge where it is to be cut, "" when it has."""
    at = _nearest(requested.at, grain)
    if within.lo < at < within.hi:
        return ""
    if grain == 1 or not within.lo <= requested.at <= within.hi:
        return f"{requested.at:016x} does not lie inside the range {within} of {requested.shard}"
    first, last = within.lo // grain * grain + grain, (within.hi - 1) // grain * grain
    if first > last:
        return (
            f"{requested.shard} {within} cannot be split: no slot begins inside it, and a slot is"
            " never cut"
        )
    allowed = min(max(at, first), last)
    return (
        f"{requested.shard} {within} cannot be split at {requested.at:016x}: a slot is never cut,"
        " and neither half may be empty. The nearest slot that can be the first of the upper half"
        f" begins at {allowed:016x}"
    )


def planned(table: RangeTable, requested: Iterable[Resharding]) -> RangeTable:
    """The table with those requested splits and merges that can begin: their shards are served and
    not being moved."""
    for each in requested:
        names = [each.shard] if isinstance(each, Split) else [each.lower, each.upper]
        entries = [entry for entry in table.shards if entry.shard in names]
        ready = len(entries) == len(names) and all(
            e.owner and not e.next_owner and not e.resharded for e in entries
        )
        if each.node != table.computation or not ready or refusal(each, {each.node: table}, {}):
            continue
        if isinstance(each, Split):
            table = _with(table, replace(entries[0], split_at=each.at))
            continue
        number = table.next_number
        table = _with(table, *(replace(entry, merges_as=table.name(number)) for entry in entries))
        table = replace(table, named=number + 1)
    return table


def _with(table: RangeTable, *entries: ShardEntry) -> RangeTable:
    new = {entry.shard: entry for entry in entries}
    return replace(table, shards=tuple(new.get(entry.shard, entry) for entry in table.shards))


def is_waiting(entry: ShardEntry) -> bool:
    """Whether the shard has been released for its split or merge. A shard whose owner died is
    not."""
    return (
        entry.resharded
        and not entry.owner
        and bool(entry.lineage)
        and entry.lineage[-1].last_commit >= 0
    )


def resharded(table: RangeTable) -> RangeTable:
    """The table with new shards in place of the waiting ones; nobody owns the new ones yet."""
    if not any(map(is_waiting, table.shards)):
        return table
    shards: list[ShardEntry] = []
    named = table.named
    for name, some in groupby(
        sorted(table.shards, key=lambda e: e.range.lo), key=lambda e: e.merges_as or e.shard
    ):
        group = list(some)
        if not all(map(is_waiting, group)):
            shards += group
        elif group[0].merges_as:
            whole = KeyRange(group[0].range.lo, group[-1].range.hi)
            shards.append(_child(name, whole, group, group[-1].lineage[-1].incarnation))
        else:
            (entry,) = group
            # A name is never given twice: consumers keep the marks of channels by the names of
            # shards, and would drop the first records of another one as applied.
            number = named or table.next_number
            named = number + 2
            lower, upper = (
                KeyRange(entry.range.lo, entry.split_at),
                KeyRange(entry.split_at, entry.range.hi),
            )
            shards.append(_child(table.name(number), lower, group, entry.lineage[-1].incarnation))
            shards.append(_child(table.name(number + 1), upper, group))
    names = {entry.shard for entry in shards}
    if names == {entry.shard for entry in table.shards}:
        return table
    # Two shards of one name would have one folder of snapshots, and one channel.
    invariant(len(names) == len(shards), f"of {len(shards)} shards some have one name: {names}")
    return replace(table, shards=tuple(shards), named=named)


def _child(
    name: ShardName, piece: KeyRange, parents: list[ShardEntry], owner: WorkerName = NO_WORKER
) -> ShardEntry:
    """A new shard. Once it is assigned, its token is higher than any of its parents', because it
    continues their channels. ``owner`` is to get it, because it has the parent's snapshot
    locally."""
    # No child reads the commits of a parent's owner behind its snapshot.
    invariant(
        all(is_waiting(entry) for entry in parents),
        f"{name} would be made of {[entry.shard for entry in parents]} before their release",
    )
    return ShardEntry(
        shard=name,
        range=piece,
        owner=NO_WORKER,
        token=max(entry.token for entry in parents),
        next_owner=owner,
        parents=tuple(
            Parent(entry.shard, entry.range, entry.token, entry.lineage[-1].last_commit)
            for entry in parents
        ),
    )
