"""From the stored table of a node to the one that should stand there: releases, deaths, orphans,
moves, pruning.

Every step is decided from the stored table alone, so after the death of a master at any point, its
successor decides the same steps again. This file is as pure as ``state.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millwheel.control.master.tables.planner import Census
from millwheel.control.master.tables.resharding import Resharding, is_waiting, planned, resharded
from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.errors import invariant

SEALED = -1
"""In a lineage: the number that the other way of ending does not have."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision about a shard, apart from its own entry.

    ``eligible`` may be given shards now. ``dead`` holds the ends of sealed journals of dead
    workers, and None for a journal that is not sealed yet. ``released`` maps (owner, shard, token)
    to the last commit. ``moves`` maps (node, shard) to the requested next owner, ``reshardings``
    are requested splits and merges. ``manifest_tokens`` shows which ancestors snapshots have made
    superfluous. ``standbys`` maps (node, shard) to the worker that must follow it from now on ("":
    none).
    """

    eligible: Collection[WorkerName]
    dead: Mapping[WorkerName, int | None]
    released: Mapping[tuple[WorkerName, ShardName, Token], int] = field(default_factory=dict)
    moves: Mapping[tuple[NodeName, ShardName], WorkerName] = field(default_factory=dict)
    manifest_tokens: Mapping[ShardName, Token] = field(default_factory=dict)
    reshardings: Collection[Resharding] = ()
    standbys: Mapping[tuple[NodeName, ShardName], WorkerName] = field(default_factory=dict)


def successor(table: RangeTable, now: Situation, census: Census) -> RangeTable:
    """The table that should follow; equal to ``table`` when nothing is to be done."""
    node = table.computation
    table = _with_shards(table, [_next(node, entry, now, census) for entry in table.shards])
    children = resharded(table)
    if children is not table:
        table = _with_shards(
            children, [_next(node, entry, now, census) for entry in children.shards]
        )
    return planned(table, now.reshardings)


def _with_shards(table: RangeTable, shards: Sequence[ShardEntry]) -> RangeTable:
    """In most cases nothing changes. Then the same table is returned, and its ranges need not be
    checked again."""
    same = True
    for after, before in zip(shards, table.shards, strict=True):
        if after is not before:
            _check_succession(before, after)
            same = False
    return table if same else replace(table, shards=tuple(shards))


def _check_succession(before: ShardEntry, after: ShardEntry) -> None:
    """Raise InvariantError unless nothing of the former owner can be lost, or count again."""
    # With a lower token, the reports and commits of a zombie would be those of the owner.
    invariant(
        not before.lease.outlived(after.token),
        f"the token of {before.shard} would fall from {before.token} to {after.token}",
    )
    if before.owner and (after.owner, after.token) != (before.owner, before.token):
        # Recovery reads the journals that the lineage names, and no others.
        last = after.lineage[-1] if after.lineage else None
        invariant(
            last is not None and (last.incarnation, last.token) == (before.owner, before.token),
            f"the lineage of {before.shard} ends with {last}, its last owner was {before.owner}",
        )


def _next(node: NodeName, entry: ShardEntry, now: Situation, census: Census) -> ShardEntry:
    entry = _pruned(entry, now)
    if entry.owner in now.dead:
        end = now.dead[entry.owner]
        # Until the seal stands its owner may still commit: nothing about the shard may change.
        return entry if end is None else _given(node, _ended(entry, end, SEALED), now, census)
    last_commit = now.released.get((entry.owner, entry.shard, entry.token))
    if entry.owner and last_commit is not None:
        return _given(node, _ended(entry, SEALED, last_commit), now, census)
    if not entry.owner:
        return _given(node, entry, now, census)
    return _moving(node, entry, now)


def _ended(entry: ShardEntry, sealed_end: int, last_commit: int) -> ShardEntry:
    """The shard has no owner any more; its lineage records where its last owner's commits end."""
    ancestor = Ancestor(entry.owner, entry.token, sealed_end, last_commit)
    # Recovery reads them in this order. Nothing would distinguish commits of two owners under one
    # token; and of an owner without an end, all that it ever writes would count.
    invariant(
        all(entry.lease.outlived(each.token) for each in entry.lineage)
        and max(sealed_end, last_commit) >= 0,
        f"{entry.owner} ends at {sealed_end} or {last_commit} under token {entry.token} of"
        f" {entry.shard}, behind {entry.lineage[-1:]}",
    )
    return replace(entry, owner=NO_WORKER, lineage=(*entry.lineage, ancestor))


def _given(node: NodeName, entry: ShardEntry, now: Situation, census: Census) -> ShardEntry:
    """An orphan under its new owner and token, or unchanged when no worker can or may take it."""
    # Its range goes to new shards: an owner under another token would commit what no child reads.
    if is_waiting(entry):
        return _unpromised(entry)
    candidates = [name for name in (entry.next_owner, entry.standby) if name in now.eligible]
    chosen = candidates[0] if candidates else census.least(node, _last_owner(entry))
    if chosen not in now.eligible:
        return _unpromised(entry)
    if chosen != entry.next_owner:
        census.add(node, chosen)
    return entry.assigned(chosen)


def _unpromised(entry: ShardEntry) -> ShardEntry:
    return replace(entry, next_owner=NO_WORKER) if entry.next_owner else entry


def _last_owner(entry: ShardEntry) -> WorkerName:
    return entry.lineage[-1].incarnation if entry.lineage else NO_WORKER


def _moving(node: NodeName, entry: ShardEntry, now: Situation) -> ShardEntry:
    """A served shard: start a requested move.

    A move is never taken back, because the owner may have stopped the shard already. If the new
    owner dies, the release is awaited all the same, and then the best worker takes the shard:
    perhaps its former owner, under a new token.
    """
    if entry.next_owner or entry.resharded:
        return entry
    standby = now.standbys.get((node, entry.shard), entry.standby)
    entry = entry if standby == entry.standby else replace(entry, standby=standby)
    chosen = now.moves.get((node, entry.shard), NO_WORKER)
    return (
        replace(entry, next_owner=chosen)
        if chosen in now.eligible and chosen != entry.owner
        else entry
    )


def _pruned(entry: ShardEntry, now: Situation) -> ShardEntry:
    """Without the ancestors whose every commit is in the shard's newest snapshot.

    Any snapshot holds what came from parents.
    """
    token = now.manifest_tokens.get(entry.shard)
    if token is None or not (entry.lineage or entry.parents):
        return entry
    lineage = entry.ancestors_since(token)
    if len(lineage) == len(entry.lineage) and not entry.parents:
        return entry
    return replace(entry, lineage=lineage, parents=())
