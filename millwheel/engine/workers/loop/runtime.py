"""The worker's loop as a step: take events, run shards, commit, ack, send, report. One thread,
never blocks.

    events ──apply──> shards ──run──> commits ──┐
       ▲                                        ▼
       └──── journal, peers, threads <──perform── Ready: sends, acks, a group for the journal

Everything that leaves the worker is gathered as data (:mod:`millwheel.engine.workers.effects`) and
performed in one place (:mod:`millwheel.engine.workers.performing`), which checks that it rests on
nothing that is not durable. A step performs once for each stretch after which others can begin to
work. Everything that waits for the outside waits as data in here; the caller of
:meth:`WorkerRuntime.step` sleeps until the returned time or the next event.

Not all of this is pure: shards write their stores and call user code when they run, and take
checkpoints; the clock, the paths of checkpoints and the list of the journal's segments are asked
for where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import Watermarks
from millwheel.core.pipeline.graph import Graph, NodeKind
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import (
    CommitGroup,
    GatheredCopies,
    GatheredDeletions,
    GatheredSnapshots,
    Gathering,
)
from millwheel.engine.workers.loop.commits import CommitGroups
from millwheel.engine.workers.loop.pace import MUCH_US, RuntimeLimits
from millwheel.engine.workers.loop.ranges import Ranges
from millwheel.engine.workers.loop.replaying import Replaying
from millwheel.engine.workers.loop.reporting import Reporting
from millwheel.engine.workers.loop.savepoint import SavepointPart
from millwheel.engine.workers.loop.shard_handle import LEAVING, LIVE, Served
from millwheel.engine.workers.loop.snapshots import SnapshotPolicy
from millwheel.engine.workers.loop.table_entries import TableEntries
from millwheel.engine.workers.loop.traffic import Traffic
from millwheel.engine.workers.performing import Performing
from millwheel.engine.workers.ports import WorkerPorts
from millwheel.engine.workers.queries.answering import Answering
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.store_read import StoreRead
from millwheel.errors import FencedError, SetupError, unreachable

_HOPS_IN_CIRCLES = 4
"""The most hops of records between shards of one worker within a step, beyond the depth of the
graph. More would make steps long."""

MakeShard = Callable[[NodeName, ShardEntry, Any, TableRouter, StoreRead | None], Shard]
"""(node, entry, open store, router, the data read from it) -> the shard's machine."""


class WorkerRuntime:
    """All shards of one worker and their traffic.

    It has more attributes than other classes because it is where the parts of the loop meet; it has
    hardly any state besides."""

    def __init__(
        self,
        incarnation: WorkerName,
        graph: Graph,
        make_shard: MakeShard,
        ports: WorkerPorts,
        limits: RuntimeLimits,
    ) -> None:
        self.incarnation = incarnation
        self._graph = graph
        self._make_shard = make_shard
        self._clock = ports.clock
        self._stopping = False
        self.stepped_at_us = self._busy_us = 0
        self._few, self._long = limits.few, False
        self._out = out = Gathering()
        self._performing = Performing(ports)
        self._served: dict[ShardName, Served] = {}
        self._entries = TableEntries()
        self._watermarks = Watermarks()
        self._snapshots = SnapshotPolicy(
            GatheredSnapshots(out, ports.snapshots),
            GatheredDeletions(out, ports.journal),
            limits.snapshots,
        )
        self._savepoints = SavepointPart(GatheredCopies(out, ports.savepoints))
        self._commits = CommitGroups(
            self._snapshots, self._complete, limits.longest_work_us, self._is_followed
        )
        self._ranges = Ranges(
            incarnation,
            self._served,
            self._entries,
            self._snapshots,
            out,
            TableRouter(graph.hash_of),
        )
        self._tracing = ports.tracing
        self._traffic = Traffic(
            incarnation, self._served, self._entries, out, limits.retry_lane_us, ports.tracing
        )
        self._reporting = Reporting(out, out, limits.reports)
        self._replaying = Replaying(self._reporting)
        self._answering = Answering(
            self._served,
            self._ranges.router,
            self._entries.get,
            incarnation,
            out,
            self._clock.monotonic_us,
            ports.copies,
        )

    # --- the step ---------------------------------------------------------------------------------

    def step(self, events: Sequence[ev.Event]) -> int:
        """Handle ``events``, let every shard run a bundle; the wall clock (µs) of the next step
        without events: not later than ``stepped_at_us``, that of this step, when it has left work.

        Raises FencedError when this incarnation has been replaced, CorruptionError or SetupError
        when it cannot go on; the process then exits and nothing unacked is lost.
        """
        self.stepped_at_us = now_us = self._clock.now_us()
        for event in events:
            self._apply(event, now_us)
        unanswered = bool(self._answering.waiting) and self._answering.step()
        if not self._stopping:
            for stalled in [each for each in self._served.values() if each.stalled]:
                stalled.retry(now_us)
            if now_us >= self._ranges.beginning.until_us:
                self._go_live(now_us)
            if not self._holding:
                self._work(now_us)
        if (group := self._commits.submit(self._unsubmitted(), now_us, self._stopping)) is not None:
            self._write(group, now_us, holds=bool(self._few) and not self._long)
        self._traffic.send_all(self._served, now_us)
        self._reporting.step(self._served.values(), now_us)
        self._snapshots.step(now_us, [(s.shard, s.life in LEAVING) for s in self._served.values()])
        if leaving := [each for each in self._served.values() if each.life in LEAVING]:
            self._ranges.release(leaving)
        if self._savepoints.answers_now:
            self._savepoints.step(self._served, now_us)
        if self._answering.resting:
            self._answering.release()
        self._perform()
        self._performing.flush()
        return now_us if unanswered else self._next_wake(now_us)

    def finished(self) -> bool:
        """True once a requested stop is complete: everything made is durable and acked."""
        return self._stopping and not self._commits.waiting

    def validate(self) -> None:
        """Raise InvariantError unless every shard holds together (see :meth:`Shard.validate`). For
        tests, between two steps."""
        for served in self._served.values():
            served.shard.validate()

    def _work(self, now_us: int) -> None:
        """Let every shard run a bundle, after those of this worker that feed it: records from shard
        to shard in here share a bundle and a commit. Shards that get something after their bundle,
        in circles, run another one. Idle shards are skipped, and send nothing."""
        every, send_all = self._served, self._traffic.send_all
        sources, levels = self._ranges.order
        self._long, self._busy_us = self._busy_us >= MUCH_US, 0
        self._run_shards(sources, now_us)
        send_all(every, now_us)
        # reads wait for no commit, and weak productions not for the disk, or for later shards
        self._perform_much()
        again: dict[ShardName, None] = {}
        for depth, names in levels:
            if ran := self._run_shards(names, now_us):
                reached = send_all(ran, now_us)
                again |= {name: None for name in reached if every[name].depth <= depth}
                self._perform_much()
        for _ in range(_HOPS_IN_CIRCLES):
            if not again:
                break
            self._run_shards(again, now_us)
            again = send_all(again, now_us)
            self._perform_much()

    def _run_shards(self, names: Iterable[ShardName], now_us: int) -> list[ShardName]:
        """Let those of these shards that have something to do run a bundle. Returns their names."""
        every, clock, ran = self._served, self._clock, list[ShardName]()
        due = [name for name in names if every[name].changed or now_us >= every[name].wakes_at_us]
        patient = bool(self._commits.waiting)
        for name in due:
            served = every[name]
            if served.life is not LIVE or not self._runnable(served, now_us, patient):
                continue
            ran.append(name)
            started = clock.monotonic_us()
            pending = served.shard.run(now_us)
            served.done.busy_us += (took := clock.monotonic_us() - started)
            self._busy_us += took
            if took >= MUCH_US:
                self._reporting.loads(every.values(), clock.now_us())
            if (group := self._commits.submit_after(took, self._unsubmitted, now_us)) is not None:
                self._write(group, now_us)
            served.changed = True
            if pending is not None or served.has_news(now_us):
                served.last.news = self._reporting.changed = True
                if served.ended:
                    self._report_ends((served,), now_us)
            if pending is not None:
                served.done.count(pending.arrivals, served.shard.identity.hashed)
        return ran

    def _runnable(self, served: Served, now_us: int, patient: bool) -> bool:
        """Whether a shard runs a bundle. One that does not is skipped until something happens to
        it, or its time has come."""
        admission, ordered = served.shard.admission, self._savepoints.ordered_now
        served.wakes_at_us = (
            self._savepoints.runs_at(served.shard, now_us, patient)
            if ordered
            else admission.runs_at(now_us, patient)
        )
        if served.wakes_at_us <= now_us:
            return True
        # Two things end without an event for the shard: an order, and the patience with which it
        # leaves a few arrivals where they are while others' commits are with the journal. Without
        # arrivals no patience ends.
        served.changed = ordered or (patient and bool(admission.inbox.waiting))
        return False

    @property
    def _holding(self) -> bool:
        return self._savepoints.ordered_now and self._savepoints.holding

    def _is_followed(self) -> bool:
        return not self._entries.followed.isdisjoint(self._served)

    def _unsubmitted(self) -> list[Shard]:
        return [
            served.shard for served in self._served.values() if served.shard.commits.unsubmitted
        ]

    def _perform(self, group: CommitGroup | None = None, holds: bool = False) -> int | None:
        ready = self._out.take(group)
        return None if ready is None else self._performing.perform(ready, holds)

    def _perform_much(self) -> None:
        """Send the output that may leave, so that others can begin on it while we work, unless it
        is little (see RuntimeLimits)."""
        sends = self._out.sends
        if sends and (self._long or sum(len(out.send.batch) for out in sends) > self._few):
            self._perform()

    def _write(self, group: CommitGroup, now_us: int, holds: bool = False) -> None:
        if (segment := self._perform(group, holds)) is not None:
            self._commits.durable(segment, now_us)

    def _complete(self, group: list[PendingCommit], now_us: int) -> None:
        """Send, ack and publish everything that waited for these commits: they are durable."""
        self._reporting.changed = True
        self._traffic.answer(
            [
                (p.shard.identity.shard, p.number, arrival)
                for p in group
                for arrival in p.shard.durable(p, now_us)
            ],
            now_us,
        )
        for name in {pending.shard.identity.shard: None for pending in group}:
            served = self._served.get(name)
            if served is not None:
                served.mark_changed()
                self._report_ends((served,), now_us)

    def _report_ends(self, those: Iterable[Served], now_us: int) -> None:
        """Report the end of a shard at once: the shards behind it can end only then."""
        early = now_us < self._reporting.due_at_us  # else this step reports what has changed
        if early and any(served.has_ended(now_us) for served in those):
            self._reporting.at_once()

    def _next_wake(self, now_us: int) -> int:
        wakes_us = [
            self._reporting.wakes_at(),
            self._ranges.beginning.until_us,
            self._commits.due_at_us,
        ]
        patient, idle = bool(self._commits.waiting), self._stopping or self._holding
        for served in self._served.values():
            wakes_us += served.stalled.values()
            if served.life is LIVE and not idle:
                if served.changed and self._runnable(served, now_us, patient):
                    return now_us
                if served.wakes_at_us > now_us:  # one that is due but cannot run waits for an event
                    wakes_us.append(served.wakes_at_us)
        return min(wakes_us)

    # --- events -----------------------------------------------------------------------------------

    def _apply(self, event: ev.Event, now_us: int) -> None:
        """Apply an event. The most frequent ones are tested first."""
        match event:
            case ev.DeliveryCame():
                self._traffic.delivery(event)
            case ev.AckCame():
                # It may have come while this worker was at work, which is not the consumer's time.
                senders = self._traffic.acked(event, now_us - self._busy_us)
                self._reporting.changed = True
                self._report_ends([served for served in senders if served.ended], now_us)
            case ev.GroupDurable():
                self._performing.written()
                self._commits.durable(event.segment, now_us)
            case ev.WorkDone():
                self._work_done(event, now_us)
            case ev.WatermarksRose():
                self._watermarks_rose(event, now_us)
            case ev.Injected():
                self._traffic.injected(event, now_us)
            case ev.TalliesChanged():
                self._tallies_changed(event)
            case ev.RefusalCame():
                self._traffic.refused(event, now_us)
            case ev.PeerLost():
                self._traffic.peer_lost(event, now_us)
            case ev.TableChanged():
                self._ranges.table(event, opens=not self._stopping)
                self._go_live(now_us)
            case ev.WorkersChanged():
                self._ranges.workers(event)
            case ev.TokenKnown():
                if self._ranges.token_known(event):
                    self._go_live(now_us)
            case ev.ShardRecovered():
                self._recovered(event, now_us)
            case ev.SnapshotPublished():
                self._snapshots.published(event.shard, event.token, event.last_commit)
            case ev.SnapshotFailed():
                if isinstance(event.error, FencedError | SetupError):
                    raise event.error
                self._snapshots.failed(event.shard, event.token, now_us)
            case ev.MasterAttached():
                self._ranges.master_attached()
            case ev.OrdersChanged():
                self._savepoints.ordered(event.members, self._served, now_us)
                self._stir()
            case ev.ShardSaved():
                self._savepoints.saved(event)
            case ev.ReplayOrdered():
                self._replaying.ordered(event, self._served.values(), self._entries)
            case ev.ReplayDone():
                self._replaying.done(event.id)
            case ev.FiguresAsked():
                event.answer(self._served.values(), now_us)
            case ev.QueriesCame():
                self._answering.asked(event.asked)
            case ev.StopAsked():
                self._stopping = True
            case ev.JournalFailed() | ev.RecoveryFailed() | ev.DamageFound():
                raise event.error
            case ev.SessionLost():
                raise FencedError(
                    f"{self.incarnation} lost its ZooKeeper session: its ranges are being given to"
                    " others"
                )
            case _:
                unreachable(event)

    def _recovered(self, event: ev.ShardRecovered, now_us: int) -> None:
        served = self._ranges.recovered(event, self._make)
        if served is None:
            return
        shard = served.shard
        self._performing.opened(shard.identity.shard, shard.commits.made)
        served.follow(self._watermarks, self._graph, now_us)
        self._replaying.begin(served, self._entries[event.entry.shard])
        self._snapshots.opened(shard, now_us, event.entry.lineage, event.replayed)
        self._savepoints.opened(shard, now_us)
        self._ranges.look_at(event, opens=not self._stopping)
        self._reporting.at_once()

    def _make(self, event: ev.ShardRecovered) -> Served:
        shard = self._make_shard(
            event.node, event.entry, event.store, self._ranges.router, event.opened
        )
        if self._tracing is not None:
            shard.trace(self._tracing, self._graph.nodes[event.node].kind is NodeKind.SOURCE)
        fellows = shard.operator.fellows
        return Served(
            shard,
            event.node,
            self._graph.roots(event.node),
            self._graph.depths()[event.node],
            fellows is not None and bool(fellows.names),
        )

    def _go_live(self, now_us: int) -> None:
        """Let shards begin once the owners of their consumers are known."""
        if self._ranges.router.has_tables(self._graph.nodes):
            self._ranges.go_live(now_us)

    def _watermarks_rose(self, event: ev.WatermarksRose, now_us: int) -> None:
        self._watermarks.rise(event.watermarks)
        for served in self._served.values():
            had_ended = served.ended
            if served.follow(self._watermarks, self._graph, now_us):
                self._reporting.changed = True
            if served.ended and not had_ended:
                self._reporting.report_often()

    def _tallies_changed(self, event: ev.TalliesChanged) -> None:
        for served in self._served.values():
            if (tallies := event.tallies.get(served.node)) is not None:
                served.shard.verdicts.follow(tallies)
                served.mark_changed()
                self._reporting.changed = True

    def _work_done(self, event: ev.WorkDone, now_us: int) -> None:
        served = self._served.get(event.shard)
        # Under another token it was done for a machine that is closed: this one may have begun the
        # same work itself, under the same number.
        if served is not None and served.lease.admits(event.token):
            event.report(now_us)
            served.mark_changed()
            self._reporting.changed = True
            self._report_ends((served,), now_us)

    def _stir(self) -> None:
        for served in self._served.values():
            served.mark_changed()
