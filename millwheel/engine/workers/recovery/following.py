"""Standbys: stores that follow the commits of other workers' shards, so that these can be taken
over without replay.

    newest snapshot + journals of former owners      as a recovery makes it
    + the certain part of the owner's journal        as it grows, a round at a time
    + the rest, up to the sealed end                 when the shard becomes ours: then the store is
                                                     that of a recovery, and serves

A follower never holds a commit that the lineage does not:
:meth:`millwheel.adapters.ports.Journals.follow` shows only groups that any seal will count. It is
an optimization: after any fault (a gap because segments were collected, an owner in between,
damage) it is dropped and made anew, and a shard without one is recovered as always.

Rounds are for one thread; the other methods are for any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millwheel.adapters.ports import Journals, Snapshots, StateStore, StateStores
from millwheel.core.formats.codec import commits_prefix, decode_commit
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.core.model.names import ShardName
from millwheel.core.model.range_table import Ancestor, ShardEntry
from millwheel.engine.workers.recovery.recovery import (
    apply,
    inherited,
    is_behind,
    last_commit,
    replay,
)
from millwheel.engine.workers.recovery.write_behind import WriteBehindStore
from millwheel.errors import CorruptionError, InvariantError, MillwheelError, invariant

log = logging.getLogger("millwheel.workers")

_MUCH_BYTES = 1 << 20  # read at once: the standby is behind and continues without a pause
_REST_ROUNDS = 50
"""A follower that cannot be made is tried again after this many rounds."""


@dataclass(frozen=True, slots=True)
class Following:
    """The inputs of followers, and the folder of their stores. ``lock`` makes a mutex.
    ``monotonic_us`` measures how old their state is."""

    stores: StateStores
    snapshots: Snapshots
    journals: Journals
    scratch: str
    lock: Callable[[], AbstractContextManager[object]]
    monotonic_us: Callable[[], int] = lambda: 0


@dataclass(slots=True)
class Follower:
    """A store that stands at commit ``have`` of its shard. ``position`` is how far the owner's
    journal was followed. ``over``: it is not to be touched any more, because it was taken or
    dropped. ``seen_us``: when (monotonic) it last had all certain commits."""

    entry: ShardEntry
    store: WriteBehindStore
    have: int
    lock: AbstractContextManager[object]
    position: JournalPosition | None = None
    over: bool = False
    seen_us: int | None = None

    @property
    def prefix(self) -> bytes:
        return commits_prefix(self.entry.shard, self.entry.token)


class Standbys:
    """All followers of one worker."""

    def __init__(self, parts: Following) -> None:
        self._parts = parts
        self._entries: dict[str, ShardEntry] = {}
        self._followers: dict[str, Follower] = {}
        self._positions: dict[str, JournalPosition | None] = {}
        self._not_before: dict[str, int] = {}
        self._closing: list[Follower] = []
        self._rounds = 0

    # --- requested followers

    def follow(self, entry: ShardEntry) -> None:
        """Follow a shard from now on, under this owner."""
        followed = self._entries.get(entry.shard)
        if followed is not None and not _same(followed, entry):
            self.drop(entry.shard)
        self._entries[entry.shard] = entry

    def drop(self, shard: ShardName) -> None:
        """Follow a shard no longer. Its store is closed in the next round, so that the caller need
        not wait."""
        self._entries.pop(shard, None)
        follower = self._followers.pop(shard, None)
        if follower is not None:
            self._closing.append(follower)

    def standing(self) -> dict[str, tuple[int, int]]:
        """(token, last commit) of each shard that is followed."""
        return {
            shard: (each.entry.token, each.have) for shard, each in list(self._followers.items())
        }

    def follower(self, shard: ShardName) -> Follower | None:
        """The follower of a shard, which may be over (any thread)."""
        return self._followers.get(shard)

    def take(self, entry: ShardEntry) -> StateStore | None:
        """The store of a shard that is ours now, with every commit of ``entry``'s lineage; None
        when there is none that could be used. It is not followed any more."""
        self._entries.pop(entry.shard, None)
        follower = self._followers.pop(entry.shard, None)
        if follower is None:
            return None
        with follower.lock:
            follower.over = True
        try:
            return self._completed(follower, entry)
        except InvariantError:
            raise
        except MillwheelError as ex:
            log.warning(
                "The standby of %s cannot be used, it is recovered from its snapshot: %s",
                entry.shard,
                ex,
            )
            follower.store.close()
            return None

    def _completed(self, follower: Follower, entry: ShardEntry) -> StateStore:
        ancestors = entry.ancestors_since(follower.entry.token)
        if not ancestors or (ancestors[0].incarnation, ancestors[0].token) != (
            follower.entry.owner,
            follower.entry.token,
        ):
            raise CorruptionError(
                f"it followed {follower.entry.owner}, which the lineage no longer names"
            )
        have = self._rest(follower, ancestors[0])
        for ancestor in ancestors[1:]:
            have = replay(entry.shard, ancestor, self._parts.journals, follower.store, have)
        if is_behind(entry.shard, have, self._parts.snapshots):
            raise CorruptionError(f"it stands at commit {have}, and a snapshot is further")
        log.info(
            "Shard %s is taken over by its standby at commit %d; %d commits are replayed.",
            *(entry.shard, follower.have, have - follower.have),
        )
        return follower.store.written()

    def _rest(self, follower: Follower, ancestor: Ancestor) -> int:
        """The owner's commits that were not yet followed."""
        if ancestor.sealed_end >= 0:
            journals, position = self._parts.journals, follower.position
            return replay(
                follower.entry.shard, ancestor, journals, follower.store, follower.have, position
            )
        if follower.have != ancestor.last_commit:
            raise CorruptionError(
                f"it stands at commit {follower.have}, the release was at {ancestor.last_commit}"
            )
        return follower.have

    # --- rounds

    def round(self) -> bool:
        """Make requested followers, and let all apply the commits that are certain; True if there
        were many."""
        self._rounds += 1
        while self._closing:
            self._close(self._closing.pop())
        new_followers = [self._made(entry) for entry in list(self._entries.values())]
        owners: dict[str, list[Follower]] = {}
        for follower in list(self._followers.values()):
            owners.setdefault(follower.entry.owner, []).append(follower)
        for gone in self._positions.keys() - owners.keys():
            del self._positions[gone]
        for follower in (each for each in new_followers if each is not None):
            # From the start of the journal: the position that other followers have reached lies
            # behind commits that the new one still lacks. The others skip what they have by its
            # number (see ``apply``).
            self._positions[follower.entry.owner] = None
        moved = [self._advance(owner, followers) for owner, followers in owners.items()]
        return any(moved)

    def _made(self, entry: ShardEntry) -> Follower | None:
        """A new follower, where there is none yet and one can be made."""
        shard, parts = entry.shard, self._parts
        if shard in self._followers or self._rounds < self._not_before.get(shard, 0):
            return None
        name = f"{shard}-{entry.token}-standby"  # replaces the remains of an earlier try
        try:
            base = inherited(
                entry, parts.stores, parts.snapshots, parts.journals, parts.scratch, name
            )
        except InvariantError:
            raise
        except MillwheelError as ex:
            self._later(shard, ex)
            return None
        follower = Follower(entry, WriteBehindStore(base), last_commit(base), parts.lock())
        self._followers[shard] = follower
        log.info("Shard %s of %s is followed from commit %d on.", shard, entry.owner, follower.have)
        current = self._entries.get(shard)
        if current is None or not _same(current, entry):  # it was dropped or taken meanwhile
            self._discard(follower)
            return None
        return follower

    def _advance(self, owner: str, followers: list[Follower]) -> bool:
        """Read the certain part of a journal, once for all shards of its owner."""
        before, began_us = self._positions.get(owner), self._parts.monotonic_us()
        try:
            part = self._parts.journals.follow(owner, before)
        except InvariantError:
            raise
        except MillwheelError as ex:
            # Deleted segments may hold commits that no follower here has read. A follower that went
            # on behind the gap would take the shard over without them (mutation
            # follower_skips_a_gap), so each begins anew with a snapshot.
            self._positions[owner] = None
            for follower in followers:
                self._discard(follower)
                self._later(follower.entry.shard, ex)
            return False
        # Further back, all would be read again, round by round, and no standby be up to date.
        invariant(
            before is None or part.position is None or part.position >= before,
            f"the journal of {owner} was followed to {before}, and back to {part.position}",
        )
        self._positions[owner] = part.position
        entries = [entry for group in part.groups for entry in group]
        for follower in followers:
            try:
                _apply(follower, entries, part.position)
                if part.whole:
                    follower.seen_us = began_us
            except CorruptionError as ex:
                self._discard(follower)
                self._later(follower.entry.shard, ex)
        return sum(map(len, entries)) > _MUCH_BYTES

    def _discard(self, follower: Follower) -> None:
        """Drop an unusable follower; another one is made if the shard is still to be followed."""
        if self._followers.get(follower.entry.shard) is follower:
            del self._followers[follower.entry.shard]
            self._close(follower)

    def _later(self, shard: ShardName, ex: MillwheelError) -> None:
        self._not_before[shard] = self._rounds + _REST_ROUNDS
        log.info("The standby of %s begins again with the newest snapshot: %s", shard, ex)

    def _close(self, follower: Follower) -> None:
        with follower.lock:
            follower.over = True
        follower.store.close()


def _same(one: ShardEntry, other: ShardEntry) -> bool:
    return (one.owner, one.token) == (other.owner, other.token)


def _apply(follower: Follower, entries: Iterable[bytes], position: JournalPosition | None) -> None:
    """Apply the shard's commits among ``entries``, which lie before ``position``."""
    prefix = follower.prefix
    for entry in entries:
        if entry.startswith(prefix):
            commit = decode_commit(entry)
            # for one commit: the loop, which answers from this store, may wait for it
            with follower.lock:
                if follower.over:
                    return
                follower.have = apply(commit, follower.entry.owner, follower.store, follower.have)
    with follower.lock:
        if not follower.over and position is not None:
            if follower.position is None or position > follower.position:
                follower.position = position
