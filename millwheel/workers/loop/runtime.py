"""The worker's loop as a step: take events, run shards, commit, ack, send, report. One thread, never blocks.

    events ──> shards ──run──> pending commits ──journal──> durable ──> acks, sends, reports

Everything that waits for something outside waits as data in here; whoever calls :meth:`WorkerRuntime.step`
sleeps until the returned time or the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millwheel.core.model.lease import Lease
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.records import Batch
from millwheel.core.model.watermark import Watermarks
from millwheel.core.pipeline.graph import Graph
from millwheel.errors import FencedError, SetupError
from millwheel.workers import events as ev
from millwheel.workers.bundle.replayed import ReplayRoute
from millwheel.workers.delivery.inbox import Arrival, Verdict
from millwheel.workers.delivery.outbox import Send
from millwheel.workers.delivery.routing import TableRouter
from millwheel.workers.loop.beginning import Beginning
from millwheel.workers.loop.commits import CommitGroups
from millwheel.workers.loop.known import KnownEntries
from millwheel.workers.loop.pace import RuntimeLimits
from millwheel.workers.loop.replaying import Replaying
from millwheel.workers.loop.reporting import Reporting
from millwheel.workers.loop.savepoint import SavepointPart
from millwheel.workers.loop.served import InjectRoute, LocalRoute, Served, levels_of
from millwheel.workers.loop.snapshots import SnapshotPolicy
from millwheel.workers.loop.standing_by import StandingBy
from millwheel.workers.ports import WorkerPorts
from millwheel.workers.shard.pending_commit import PendingCommit
from millwheel.workers.shard.shard import Shard

_HOPS_IN_CIRCLES = 4
"""From shard to shard of one worker within a step, beyond the way down the graph. More would make steps long."""

MakeShard = Callable[[str, ShardEntry, Any, TableRouter], Shard]
"""(node, entry, open store, router) -> the shard's machine."""


class WorkerRuntime:
    """All shards of one worker and their traffic."""

    def __init__(
        self, incarnation: str, graph: Graph, make_shard: MakeShard, ports: WorkerPorts, limits: RuntimeLimits
    ) -> None:
        self.incarnation = incarnation
        self._graph = graph
        self._depths = graph.depths()
        self._make_shard = make_shard
        self._ports = ports
        self._limits = limits
        self._router = TableRouter()
        self._served: dict[str, Served] = {}
        self._levels: list[tuple[int, list[str]]] = []
        self._opening: dict[str, Lease] = {}
        self._beginning = Beginning()
        self._entries = KnownEntries()
        self._versions: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._watermarks = Watermarks()
        self._snapshots = SnapshotPolicy(ports.snapshots, ports.journal, limits.snapshots)
        self._savepoints = SavepointPart(ports.savepoints)
        self._commits = CommitGroups(ports.journal, self._snapshots, self._complete, limits.longest_work_us)
        self._standing_by = StandingBy(incarnation, ports.followers)
        self._stopping = self._joined = False
        self._reporting = Reporting(ports.reports, ports.master, limits.reports)
        self._replaying = Replaying(self._reporting)
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            ev.DeliveryCame: self._on_delivery,
            ev.AckCame: self._on_ack,
            ev.RefusalCame: self._on_refusal,
            ev.PeerLost: self._on_peer_lost,
            ev.TableChanged: self._on_table,
            ev.WorkersChanged: self._on_workers,
            ev.WatermarksRose: self._on_watermarks,
            ev.TalliesTold: self._on_tallies,
            ev.TokenKnown: self._on_token_known,
            ev.GroupDurable: lambda event, now: self._commits.durable(event.segment, now),
            ev.JournalFailed: self._on_failed,
            ev.ShardRecovered: self._on_recovered,
            ev.RecoveryFailed: self._on_failed,
            ev.DamageFound: self._on_failed,
            ev.SnapshotPublished: lambda event, now: self._snapshots.published(
                event.shard, event.token, event.last_commit
            ),
            ev.SnapshotFailed: self._on_snapshot_failed,
            ev.WorkDone: self._on_work_done,
            ev.Injected: self._on_injected,
            ev.MasterAttached: self._on_master_attached,
            ev.SessionLost: self._on_session_lost,
            ev.StopAsked: self._on_stop,
            ev.OrdersChanged: self._on_orders,
            ev.ReplayOrdered: lambda event, now: self._replaying.ordered(event, self._served.values(), self._entries),
            ev.ReplayDone: lambda event, now: self._replaying.done(event.id),
            ev.ShardSaved: lambda event, now: self._savepoints.saved(event),
        }

    # --- the step ----------------------------------------------------------------------------------------

    def step(self, events: Sequence[ev.Event]) -> int:
        """Handle ``events``, let every shard run a bundle; the wall clock (µs) of the next step without events.

        Raises FencedError when this incarnation has been replaced, CorruptionError or SetupError when it
        cannot go on; the process then exits and nothing unacked is lost.
        """
        now = self._ports.clock.now_us()
        for event in events:
            self._handlers[type(event)](event, now)
        if not self._stopping:
            self._retry_lanes(now)
            if now >= self._beginning.until:
                self._go_live(now)
            self._work(now)
        self._commits.submit(self._shards(), now, self._stopping)
        self._send_all(self._served, now)
        self._reporting.step(self._served.values(), now)
        self._snapshots.step(now, [(s.shard, s.leaving) for s in self._served.values()])
        self._release_leaving()
        self._savepoints.step(self._served, now)
        self._ports.transport.flush()
        return self._next_wake(now)

    def _shards(self) -> list[Shard]:
        return [served.shard for served in self._served.values()]

    def finished(self) -> bool:
        """True once a requested stop is complete: everything made is durable and acked."""
        return self._stopping and not self._commits

    def _work(self, now: int) -> None:
        """Every shard runs a bundle, after those of this worker that feed it: what goes from shard to shard in here
        shares a bundle and a commit. Those that get something after their bundle, in circles, run another one."""
        every = self._served
        self._run_shards([served for served in every.values() if served.reads], now)
        self._send_all(every, now)
        self._ports.transport.flush()  # reads wait for no commit: others may begin on them while we work
        again: dict[str, None] = {}
        for depth, names in self._levels:
            self._run_shards([every[name] for name in names], now)
            again |= {target: None for target in self._send_all(names, now) if every[target].depth <= depth}
            self._ports.transport.flush()  # nor do weak productions wait for the disk, or for who comes after them
        for _ in range(_HOPS_IN_CIRCLES):
            if not again:
                break
            self._run_shards([every[name] for name in again], now)
            again = self._send_all(again, now)
            self._ports.transport.flush()

    def _run_shards(self, shards: Iterable[Served], now: int) -> None:
        clock, patient = self._ports.clock, bool(self._commits)
        for served in shards if not self._savepoints.holding else ():
            if now < served.wakes_at and not served.stirred:
                continue
            if served.leaving or not served.live or not self._runnable(served, now, patient):
                continue
            started = clock.monotonic_us()
            pending = served.shard.run(now)
            served.busy_us += (took := clock.monotonic_us() - started)
            self._commits.submit_after(took, self._shards, now)
            served.stirred = True
            if pending is not None or served.has_news(now):
                self._reporting.changed = True
            if pending is not None:
                served.count(pending.arrivals)

    def _runnable(self, served: Served, now: int, patient: bool) -> bool:
        """Whether a shard runs a bundle. One that does not is not asked again before something happens to it, or its
        time has come; but patience may end without either."""
        if self._savepoints.runnable(served.shard, now, patient):
            return True
        served.stirred = patient or self._savepoints.ordered_now
        served.wakes_at = served.shard.wakes_at(now)
        return False

    def _complete(self, group: list[PendingCommit], now: int) -> None:
        self._reporting.changed = True
        self._ack([(p.shard.identity.shard, arrival) for p in group for arrival in p.shard.durable(p, now)])
        for name in {pending.shard.identity.shard: None for pending in group}:
            served = self._served.get(name)
            if served is not None:
                served.stirred = True
                if served.has_ended(now):
                    self._reporting.at_once()  # everybody behind it may end

    def _ack(self, applied: Iterable[tuple[str, Arrival]]) -> None:
        """Answer what these shards have applied, in order: for each lane it is enough to name the last."""
        last: dict[tuple[Any, str, str, int], int] = {}
        for target, arrival in applied:
            if isinstance(arrival.route, InjectRoute):
                arrival.route()
            elif not isinstance(arrival.route, ReplayRoute):
                last[arrival.route, arrival.channel, target, arrival.epoch] = arrival.index
        for (route, channel, target, epoch), index in last.items():
            if not isinstance(route, LocalRoute):
                self._ports.transport.ack(route, channel, target, epoch, index)
            elif (sender := self._served.get(route.sender)) is not None:
                sender.stirred = True
                sender.shard.outbox.ack(channel, target, epoch, index)

    # --- sending -----------------------------------------------------------------------------------------

    def _send_all(self, senders: Iterable[str], now: int) -> dict[str, None]:
        """Send what these shards may send; the shards of this worker that got something."""
        reached: dict[str, None] = {}
        for name in senders:
            served = self._served[name]
            if served.leaving or not served.live:
                continue
            outbox = served.shard.outbox
            for send in outbox.sends(self._may_have_early) if outbox.has_ready else ():
                lane = (send.channel, send.target)
                if lane in served.stalled:
                    continue
                if not self._send(name, send, now):
                    served.stalled[lane] = now + self._limits.retry_lane_us
                elif send.target in self._served:
                    reached[send.target] = None
        return reached

    def _may_have_early(self, target: str) -> bool:
        """A shard of this worker may work on what is not durable yet, unless it sends before it commits."""
        served = self._served.get(target)
        return served is not None and not served.leaving and served.live and not served.shard.identity.weak

    def _send(self, sender: str, send: Send, now: int) -> bool:
        entry = self._entries.get(send.target)
        if entry is None or not entry.owner:
            return False
        if entry.owner == self.incarnation:
            local = self._served.get(send.target)
            if local is None or local.leaving or not local.live:
                return False
            local.stirred = True
            taken = local.shard.offer(send.channel, send.epoch, send.index, send.batch, LocalRoute(sender))
            return taken is not Verdict.RESTART
        address = self._addresses.get(entry.owner)
        if address is None:
            return False
        self._ports.transport.send(address, entry.token, send)
        return True

    def _retry_lanes(self, now: int) -> None:
        for served in self._served.values():
            if served.stalled:
                served.retry(now)

    # --- events: traffic ---------------------------------------------------------------------------------

    def _on_delivery(self, event: ev.DeliveryCame, now: int) -> None:
        served = self._served.get(event.target)
        refuse = self._ports.transport.refuse
        # The sender may know a newer owner than us. What we took then, as a zombie, we would ack without effect.
        if served is None or served.leaving or not served.live or served.lease.is_behind(event.target_token):
            refuse(event.route, event.channel, event.target, event.epoch, True)
            return
        served.stirred = True
        verdict = served.shard.offer(event.channel, event.epoch, event.index, event.batch, event.route)
        if verdict is Verdict.RESTART:
            refuse(event.route, event.channel, event.target, event.epoch, False)

    def _on_ack(self, event: ev.AckCame, now: int) -> None:
        for served in self._senders(event.channel):
            served.stirred = True
            served.shard.outbox.ack(event.channel, event.target, event.epoch, event.index)
        self._reporting.changed = True

    def _on_refusal(self, event: ev.RefusalCame, now: int) -> None:
        for served in self._senders(event.channel):
            if event.moved:
                served.stalled.setdefault((event.channel, event.target), now + self._limits.retry_lane_us)
            else:
                served.shard.outbox.restart(event.channel, event.target, event.epoch)

    def _senders(self, channel: str) -> list[Served]:
        direct = self._served.get(channel)
        if direct is not None:
            return [direct]
        return [served for served in self._served.values() if served.shard.outbox.sends_on(channel)]

    def _on_peer_lost(self, event: ev.PeerLost, now: int) -> None:
        lost = {entry.shard for entry in self._entries if self._addresses.get(entry.owner) == event.address}
        for served in self._served.values():
            for lane in served.shard.outbox.lanes_to(lost):
                served.stalled.setdefault(lane, now + self._limits.retry_lane_us)

    def _on_injected(self, event: ev.Injected, now: int) -> None:
        served = self._served.get(event.target)
        if served is None or served.leaving or not served.live:
            event.answer(True, 0, 0, 0)
            return
        batch = Batch(
            event.stream, [], [now] * len(event.ids), list(event.ids), list(event.values), list(event.ids), now
        )
        served.stirred = True
        served.shard.inject(batch, InjectRoute(event.answer))

    # --- events: ranges ----------------------------------------------------------------------------------

    def _on_workers(self, event: ev.WorkersChanged, now: int) -> None:
        self._addresses = dict(event.addresses)
        if self.incarnation in event.addresses:
            self._joined = True
        elif self._joined:
            raise FencedError(f"{self.incarnation} is no member any more: the master has declared it dead")

    def _on_table(self, event: ev.TableChanged, now: int) -> None:
        table = event.table
        if table.version <= self._versions.get(table.computation, -1):
            return
        self._versions[table.computation] = table.version
        news = self._entries.take(table)
        self._router.update(table)
        for entry in (*news.buried, *table.shards):
            self._follow(table.computation, entry)
        self._standing_by.look(table.shards, news.buried)
        self._go_live(now)
        for served in self._served.values():
            served.stirred = True
            served.shard.outbox.reroute(news.gone, news.fresh, self._router.route)
            served.shard.outbox.restart_all(news.changed.__contains__)
            for lane in [lane for lane in served.stalled if lane[1] in news.changed | news.gone]:
                del served.stalled[lane]

    def _follow(self, node: str, entry: ShardEntry) -> None:
        served = self._served.get(entry.shard)
        if entry.owner != self.incarnation:
            if served is not None and not served.leaving:
                raise FencedError(
                    f"shard {entry.shard} belongs to {entry.owner or 'nobody'} under token {entry.token}, "
                    f"taken from {self.incarnation} without a release: this incarnation was declared dead"
                )
            if served is not None:
                self._drop(entry.shard)
            return
        if served is not None and served.lease.admits(entry.token):
            served.leaving = served.leaving or entry.must_leave(self.incarnation)
            return
        if served is not None:
            self._drop(entry.shard)
        if self._opening.get(entry.shard) != entry.lease and not self._stopping:
            self._opening[entry.shard] = entry.lease
            self._ports.recoveries.recover(node, entry)

    def _drop(self, shard: str) -> None:
        served = self._served.pop(shard)
        self._levels = levels_of(self._served)
        self._ports.reports.forget(shard)
        self._snapshots.forget(shard)
        served.shard.close()

    def _release_leaving(self) -> None:
        """A planned move: once the last commit is durable and in a snapshot, the master may hand the shard on."""
        for name, served in self._served.items():
            shard = served.shard
            if served.leaving and not served.released and shard.settled() and self._snapshots.covers(shard):
                served.released = True
                self._ports.master.released(name, shard.identity.token, shard.made_number)

    def _on_master_attached(self, event: ev.MasterAttached, now: int) -> None:
        for served in self._served.values():
            served.released = False

    def _on_recovered(self, event: ev.ShardRecovered, now: int) -> None:
        name, lease = event.entry.shard, event.entry.lease
        if self._opening.get(name) != lease or self._entries.lease(name) != lease:
            event.store.close()
            return
        del self._opening[name]
        shard = self._make_shard(event.node, event.entry, event.store, self._router)
        served = Served(shard, event.node, self._graph.roots(event.node), self._depths[event.node])
        self._served[name] = served
        self._levels = levels_of(self._served)
        served.follow(self._watermarks, self._graph)
        self._replaying.begin(served, self._entries[name])
        self._snapshots.opened(shard, now, event.entry.lineage, event.replayed)
        self._savepoints.opened(shard, now)
        self._follow(event.node, self._entries[name])
        self._reporting.at_once()

    def _on_failed(self, event: ev.RecoveryFailed | ev.DamageFound | ev.JournalFailed, now: int) -> None:
        raise event.error

    def _on_token_known(self, event: ev.TokenKnown, now: int) -> None:
        served = self._served.get(event.shard)
        if served is not None and served.lease.admits(event.token):
            served.token_known = True
            self._go_live(now)

    def _go_live(self, now: int) -> None:
        """Shards whose token the injector knows start to work once it is known where their productions go."""
        if self._router.knows(self._graph.nodes):
            for served in self._beginning.due(self._served.values(), bool(self._opening), now):
                served.live = served.stirred = True
                served.shard.start()

    # --- events: time and durability ---------------------------------------------------------------------

    def _on_watermarks(self, event: ev.WatermarksRose, now: int) -> None:
        self._watermarks.rise(event.watermarks)
        for served in self._served.values():
            had_ended = served.ended
            if served.follow(self._watermarks, self._graph):
                self._reporting.changed = True
            if served.ended and not had_ended:
                self._reporting.hurry()

    def _on_tallies(self, event: ev.TalliesTold, now: int) -> None:
        for served in self._served.values():
            if (told := event.tallies.get(served.node)) is not None:
                served.shard.verdicts.hear(told)
                served.stirred = self._reporting.changed = True

    def _on_work_done(self, event: ev.WorkDone, now: int) -> None:
        served = self._served.get(event.shard)
        if served is not None and served.lease.admits(event.token):
            event.tell(now)
            served.stirred = self._reporting.changed = True

    def _on_snapshot_failed(self, event: ev.SnapshotFailed, now: int) -> None:
        if isinstance(event.error, FencedError | SetupError):
            raise event.error
        self._snapshots.failed(event.shard, event.token, now)

    def _on_session_lost(self, event: ev.SessionLost, now: int) -> None:
        raise FencedError(f"{self.incarnation} lost its ZooKeeper session: its ranges are being given to others")

    def _on_stop(self, event: ev.StopAsked, now: int) -> None:
        self._stopping = True

    def _on_orders(self, event: ev.OrdersChanged, now: int) -> None:
        self._savepoints.ordered(event.members, self._served, now)
        for served in self._served.values():
            served.stirred = True

    def _next_wake(self, now: int) -> int:
        wakes, patient = [self._reporting.wakes_at(), self._beginning.until, self._commits.due_at], bool(self._commits)
        for served in self._served.values():
            wakes += served.stalled.values()
            if served.live and not self._stopping and not served.leaving and not self._savepoints.holding:
                if served.stirred and self._runnable(served, now, patient):
                    return now
                if served.wakes_at > now:  # what is due but cannot run yet waits for the event that lets it
                    wakes.append(served.wakes_at)
        return min(wakes)
