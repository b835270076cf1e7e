"""Brings a shard's store to the state its lineage committed: newest snapshot (of the shard, or else
of those it came from), then the journals of its ancestors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millwheel.adapters.ports import JournalsRead, Manifest, Snapshots, StateStore, StateStores
from millwheel.core.formats.codec import Commit, commits_prefix, decode_commit, number_of_commit
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.core.formats.store_layout import META, decode_meta
from millwheel.core.model.names import NO_TOKEN, ShardName
from millwheel.core.model.range_table import Ancestor, ShardEntry
from millwheel.engine.workers.recovery.inheriting import Estate, inherit
from millwheel.engine.workers.recovery.write_behind import WriteBehindStore
from millwheel.errors import CorruptionError, FencedError, UnavailableError, invariant

log = logging.getLogger("millwheel.workers")


@dataclass(slots=True)
class Effort:
    """The work of a recovery: bytes of replayed commits."""

    replayed: int = 0


def recover(
    entry: ShardEntry,
    stores: StateStores,
    snapshots: Snapshots,
    journals: JournalsRead,
    scratch: str,
    effort: Effort | None = None,
) -> StateStore:
    """An open store with every commit of ``entry``'s lineage, and nothing else. ``effort`` counts
    the work.

    Raises CorruptionError when a commit is missing or unreadable: recovery never skips. A snapshot
    that an earlier owner published at its last moment may let journal segments go before they were
    read: then recovery starts again from that snapshot.
    """
    store_name = f"{entry.shard}-{entry.token}"
    while is_behind(
        entry.shard,
        last_commit(
            store := inherited(entry, stores, snapshots, journals, scratch, store_name, effort)
        ),
        snapshots,
    ):
        store.close()
    return store


def inherited(
    entry: ShardEntry,
    stores: StateStores,
    snapshots: Snapshots,
    journals: JournalsRead,
    scratch: str,
    store_name: str,
    effort: Effort | None = None,
) -> StateStore:
    """An open store, named ``store_name``, with all commits of ``entry``'s lineage. It may also
    hold commits that the living owner has in a snapshot, even more than was seen here: see
    :func:`is_behind`."""
    while True:
        manifest = snapshots.latest(entry.shard)
        try:
            return _recover_from(
                manifest,
                entry,
                stores,
                snapshots,
                journals,
                scratch,
                store_name,
                effort or Effort(),
            )
        except (CorruptionError, FencedError, UnavailableError):
            if snapshots.latest(entry.shard) == manifest:
                raise


def is_behind(shard: ShardName, have: int, snapshots: Snapshots) -> bool:
    """Whether a snapshot holds more than commit ``have``: then the segments with those commits may
    have been gone when the journal was read, and no other check would notice."""
    newest = snapshots.latest(shard)
    return newest is not None and newest.last_commit > have


def _recover_from(
    manifest: Manifest | None,
    entry: ShardEntry,
    stores: StateStores,
    snapshots: Snapshots,
    journals: JournalsRead,
    scratch: str,
    store_name: str,
    effort: Effort,
) -> StateStore:
    effort.replayed = 0
    if manifest is not None:
        store = restored(manifest, store_name, snapshots, stores, scratch)
    else:
        store = stores.open(store_name, None)
    try:
        if manifest is None and entry.parents:
            _inherit(entry, store, snapshots, stores, scratch, store_name)
        have = base = last_commit(store)
        # one write for many commits: most of them write some entries again
        replayed = WriteBehindStore(store)
        for ancestor in entry.ancestors_since(manifest.token if manifest is not None else NO_TOKEN):
            have = replay(entry.shard, ancestor, journals, replayed, have, effort=effort)
        replayed.written()
        # The owner numbers its commits from the one in the store: if that were older than the
        # replayed ones, two commits would have one number.
        stands = last_commit(store)
        invariant(
            stands == have, f"{entry.shard} is replayed to commit {have}, its store is at {stands}"
        )
    except BaseException:
        store.close()
        raise
    about = {"shard": entry.shard}
    words = "Shard %s is restored to commit %d; %d commits are replayed."
    log.info(words, entry.shard, base, have - base, extra=about)
    return store


def restored(
    manifest: Manifest, store_name: str, snapshots: Snapshots, stores: StateStores, scratch: str
) -> StateStore:
    """A snapshot as an open store."""
    checkpoint = str(Path(scratch) / f"restore-{store_name}")
    snapshots.restore(manifest, checkpoint)
    store = stores.open(store_name, checkpoint)
    have = last_commit(store)
    if have != manifest.last_commit:
        store.close()
        raise CorruptionError(
            f"shard {manifest.shard}: snapshot {manifest.number} says it ends with commit"
            f" {manifest.last_commit}, its store with {have}"
        )
    return store


def _inherit(
    entry: ShardEntry,
    store: StateStore,
    snapshots: Snapshots,
    stores: StateStores,
    scratch: str,
    store_name: str,
) -> None:
    """Fill the store of a shard that has no snapshot of its own from those of its parents."""
    estates: list[Estate] = []
    try:
        for parent in entry.parents:
            from_parent = f"{store_name}-from-{parent.shard}"
            manifest = snapshots.latest(parent.shard) if parent.last_commit else None
            if manifest is not None and manifest.last_commit == parent.last_commit:
                opened = restored(manifest, from_parent, snapshots, stores, scratch)
            elif parent.last_commit:
                raise CorruptionError(
                    f"shard {entry.shard} comes from {parent.shard}, which was released after"
                    f" commit {parent.last_commit}, but its newest snapshot is {manifest}"
                )
            else:
                opened = stores.open(from_parent, None)
            estates.append(Estate.of(parent, opened, entry.range))
        inherit(entry, estates, store)
    finally:
        for estate in estates:
            estate.store.close()


def replay(
    shard: ShardName,
    ancestor: Ancestor,
    journals: JournalsRead,
    store: StateStore,
    have: int,
    since: JournalPosition | None = None,
    effort: Effort | None = None,
) -> int:
    """Apply an ancestor's commits after commit ``have``; where the shard stands then. ``since``:
    how far its journal was followed. Raises CorruptionError when a commit is missing."""
    for commit, size in _commits(shard, ancestor, journals, since, have):
        if effort is not None and commit.number > have:
            effort.replayed += size
        have = apply(commit, ancestor.incarnation, store, have)
    if ancestor.last_commit > have:
        raise CorruptionError(
            f"shard {shard}: {ancestor.incarnation} released it after commit"
            f" {ancestor.last_commit}, but its journal ends with {have}"
        )
    return have


def apply(commit: Commit, incarnation: str, store: StateStore, have: int) -> int:
    """Apply the commit that follows commit ``have``, or nothing when it is there; where the store
    stands then."""
    if commit.number <= have:
        return have
    if commit.number != have + 1:
        raise CorruptionError(
            f"shard {commit.shard}: journal of {incarnation} continues with commit {commit.number},"
            f" but the shard stands at {have}: {commit.number - have - 1} commits are missing"
        )
    store.apply(commit.puts, commit.deletes)
    return commit.number


def _commits(
    shard: ShardName,
    ancestor: Ancestor,
    journals: JournalsRead,
    since: JournalPosition | None,
    have: int,
) -> Iterator[tuple[Commit, int]]:
    """An ancestor's commits of the shard after commit ``have``, each with its bytes."""
    prefix = commits_prefix(shard, ancestor.token)
    # Without an end of either kind, the journal of a living owner would be read: it still grows.
    invariant(
        max(ancestor.sealed_end, ancestor.last_commit) >= 0,
        f"the lineage of {shard} has no end for {ancestor.incarnation}",
    )
    entries = journals.read(ancestor.incarnation, ancestor.sealed_end, since, prefix)
    for entry in entries:
        if 0 <= number_of_commit(entry, prefix) <= have:
            continue  # the snapshot has it; most of a journal may be such
        commit = decode_commit(entry)
        if 0 <= ancestor.last_commit < commit.number:
            return
        yield commit, len(entry)


def last_commit(store: StateStore) -> int:
    """The number of the last commit that a store holds."""
    data = store.get(META)
    return 0 if data is None else decode_meta(data).number
