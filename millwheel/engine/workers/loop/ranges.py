"""The shards that this worker serves by the range tables: they are opened, begin, leave, and are
dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millwheel.core.model.lease import Lease
from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import Gathering, Recover
from millwheel.engine.workers.loop.shard_handle import (
    Life,
    LifeChange,
    Served,
    sources_and_levels,
)
from millwheel.engine.workers.loop.snapshots import SnapshotPolicy
from millwheel.engine.workers.loop.table_entries import TableEntries
from millwheel.engine.workers.ports import Followers
from millwheel.errors import FencedError, invariant


class StandingBy:
    """Follows the shards whose entries name us as their standby. A shard that has become ours is
    left to its recovery, which takes what was followed."""

    def __init__(self, incarnation: str, followers: Followers) -> None:
        self._incarnation = incarnation
        self._followers = followers
        self._followed: set[str] = set()

    def look(self, entries: Iterable[ShardEntry], removed: Iterable[ShardEntry]) -> None:
        """Follow the current entries, and drop those of shards that no longer exist."""
        for gone in removed:
            if gone.shard in self._followed:
                self._forget(gone)
        for entry in entries:
            if entry.standby == self._incarnation and entry.owner not in ("", self._incarnation):
                self._followed.add(entry.shard)
                self._followers.follow(entry)
            elif entry.shard in self._followed and entry.owner:
                self._forget(entry)

    def _forget(self, entry: ShardEntry) -> None:
        self._followed.discard(entry.shard)
        if entry.owner != self._incarnation:
            self._followers.drop(entry.shard)


LONGEST_US = SECOND
"""Sources do not wait longer for the other shards of their worker."""


@dataclass(slots=True)
class Beginning:
    """A shard begins when the injector has its token, but a source first waits for the shards that
    are still opening here: its records could only be buffered for them, and reading would slow
    their opening. ``until`` is the end of that wait (wall clock, µs; MAX_TIME: no shard waits)."""

    until_us: int = MAX_TIME

    def due(self, served: Iterable[Served], opening: bool, now_us: int) -> list[Served]:
        """The shards that begin now. ``opening``: stores are still being opened."""
        every = list(served)
        ready = [one for one in every if one.life is Life.KNOWN]
        others = opening or any(one.life is Life.OPENED and not one.reads for one in every)
        if not others or now_us >= self.until_us:
            self.until_us = MAX_TIME
            return ready
        if self.until_us == MAX_TIME and any(one.reads for one in ready):
            self.until_us = now_us + LONGEST_US
        return [one for one in ready if not one.reads]


MakeServed = Callable[[ev.ShardRecovered], Served]


class Ranges:
    """Keeps ``served`` equal to the tables."""

    def __init__(
        self,
        incarnation: WorkerName,
        served: dict[ShardName, Served],
        entries: TableEntries,
        snapshots: SnapshotPolicy,
        out: Gathering,
        router: TableRouter,
    ) -> None:
        self._incarnation = incarnation
        self._served = served
        self._entries = entries
        self._snapshots = snapshots
        self._out = out
        self._opening: dict[str, Lease] = {}
        self._joined = False
        self._standing_by = StandingBy(incarnation, out)
        self.router = router
        router.distance = lambda shard: entries.distance(shard, incarnation)
        self.beginning = Beginning()
        self._order: tuple[list[ShardName], list[tuple[int, list[ShardName]]]] | None = None

    @property
    def order(self) -> tuple[list[ShardName], list[tuple[int, list[ShardName]]]]:
        """The shards that read, and the others from the sources down. After a death a hundred come
        in one step: they are sorted once."""
        if self._order is None:
            self._order = sources_and_levels(self._served)
        return self._order

    def workers(self, event: ev.WorkersChanged) -> None:
        """Follow workers that joined or left. Raises FencedError if this worker is no longer a
        member."""
        self._entries.addresses = dict(event.addresses)
        self._entries.locations = dict(event.locations)
        if self._incarnation in event.addresses:
            self._joined = True
        elif self._joined:
            raise FencedError(
                f"{self._incarnation} is not a member any more: the master has declared it dead"
            )

    def table(self, event: ev.TableChanged, opens: bool) -> None:
        """Follow a table. Nothing is opened any more unless ``opens``. Raises FencedError when a
        shard was taken from us."""
        table = event.table
        news = self._entries.take(table)
        if news is None:
            return
        self.router.update(table)
        for entry in (*news.removed, *table.shards):
            self._follow(table.computation, entry, opens)
        self._standing_by.look(table.shards, news.removed)
        for served in self._served.values():
            served.mark_changed()
            if served.shard.outbox.leads_to(table.computation):
                served.shard.outbox.reroute(news.gone, news.fresh, self.router.route)
                served.shard.outbox.restart_all(news.changed.__contains__)
            for lane in [lane for lane in served.stalled if lane[1] in news.changed | news.gone]:
                del served.stalled[lane]

    def _follow(self, node: NodeName, entry: ShardEntry, opens: bool) -> None:
        served = self._served.get(entry.shard)
        if entry.owner != self._incarnation:
            if served is not None and not served.leaving:
                raise FencedError(
                    f"shard {entry.shard} belongs to {entry.owner or 'nobody'} under token"
                    f" {entry.token}, taken from {self._incarnation} without a release: this"
                    " incarnation was declared dead"
                )
            if served is not None:
                self._drop(entry.shard)
            return
        if served is not None and served.lease.admits(entry.token):
            if entry.must_leave(self._incarnation):
                served.change(LifeChange.MUST_LEAVE)
            return
        if served is not None:
            self._drop(entry.shard)
        if self._opening.get(entry.shard) != entry.lease and opens:
            self._opening[entry.shard] = entry.lease
            self._out.others.append(Recover(node, entry))

    def _drop(self, shard: ShardName) -> None:
        served = self._served.pop(shard)
        self._order = None
        self._out.forget(shard)
        self._snapshots.forget(shard)
        served.shard.close()

    def recovered(self, event: ev.ShardRecovered, make: MakeServed) -> Served | None:
        """Serve the shard of a store that is open; None when the tables have moved on meanwhile."""
        name, lease = event.entry.shard, event.entry.lease
        if self._opening.get(name) != lease or self._entries.lease(name) != lease:
            event.store.close()
            return None
        del self._opening[name]
        # Two machines of one shard would give the same numbers to their commits.
        invariant(name not in self._served, f"{name} is served already")
        served = self._served[name] = make(event)
        self._order = None
        return served

    def look_at(self, event: ev.ShardRecovered, opens: bool) -> None:
        """Look at the entry of a shard again, which may have changed while it was opened."""
        self._follow(event.node, self._entries[event.entry.shard], opens)

    def token_known(self, event: ev.TokenKnown) -> bool:
        """Note that reports of an earlier owner of a shard no longer count. True if the shard is
        ours."""
        served = self._served.get(event.shard)
        if served is None or not served.lease.admits(event.token):
            return False
        served.change(LifeChange.TOKEN_KNOWN)
        return True

    def go_live(self, now_us: int) -> None:
        """Let shards whose token the injector has start to work."""
        for served in self.beginning.due(self._served.values(), bool(self._opening), now_us):
            served.begin()

    def release(self, leaving: Iterable[Served]) -> None:
        """Release shards of planned moves: once the last commit of one is durable and in a
        snapshot, the master may hand it on."""
        for served in leaving:
            shard = served.shard
            # Released before, the next owner would open without that commit, and give its number to
            # another one.
            if (
                served.life is Life.LEAVING
                and not shard.commits.pending
                and self._snapshots.covers(shard)
            ):
                served.change(LifeChange.IS_RELEASED)
                self._out.released(shard.identity.shard, shard.identity.token, shard.commits.made)

    def master_attached(self) -> None:
        """Report releases again: the new master has none."""
        for served in self._served.values():
            served.change(LifeChange.NEW_MASTER)
