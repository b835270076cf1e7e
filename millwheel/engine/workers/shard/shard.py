"""One shard as this worker serves it: receive, dedup, run, commit, ack and send, in this order.

    offer()    → the inbox takes a delivery, or not
    run()      → a PendingCommit: applied to the local store, not yet durable. Shards of the same
               worker may have
                 its productions: their commits come behind it in the same journal, so none outlives
                 it
    (journal)  → the runtime makes it durable together with those of other shards
    durable()  → only now: acks to the senders, productions to other workers, sink cuts published

Reads of a replayable source need no such wait: they are sent at once and their position is
committed after every consumer has applied them.

Each concern has an owner beside this file: the decision to take a bundle (:mod:`admission`), the
contents of a commit (:mod:`commit_building`), commits between their bundle and the disk
(:mod:`in_flight`), the watermark (:mod:`watermark`). A shard has no clock, no thread and no
network, but it is not pure: ``run`` calls user code and writes the local store, and an operator may
write files of its own (a sink prepares its cut).
"""

from __future__ import annotations

from collections.abc import Callable

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.names import NO_CHANNEL, ChannelName
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import Avoided
from millwheel.engine.workers.bundle.lone_records import count_of, put_aside
from millwheel.engine.workers.bundle.operator import Operator, Validated
from millwheel.engine.workers.bundle.replays import take_replayed
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.high_water_marks import AppliedHighWaterMarks
from millwheel.engine.workers.delivery.inbox import Arrival, DeliveryOutcome, Inbox
from millwheel.engine.workers.delivery.instances import InstanceCounts
from millwheel.engine.workers.delivery.outbox import Outbox, Route
from millwheel.engine.workers.shard.admission import Admission, BundleSize, ShardLimits
from millwheel.engine.workers.shard.commit_building import CommitBuilding
from millwheel.engine.workers.shard.in_flight import InFlight, PendingCommit, Step
from millwheel.engine.workers.shard.opening import (
    read_high_water_marks,
    read_meta,
    read_pending,
    read_productions,
    read_timers,
    validate_store,
)
from millwheel.engine.workers.shard.productions import ProductionBuilding, ShardIdentity
from millwheel.engine.workers.shard.seen_ids import SeenIds
from millwheel.engine.workers.shard.verdicts import Policies, Verdicts
from millwheel.engine.workers.shard.watermark import ShardWatermark
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.store_read import StoreRead
from millwheel.engine.workers.tracing.tracing import ShardTracing, Tracing
from millwheel.errors import invariant

OperatorFactory = Callable[["Shard"], Operator]


class Shard:
    """Serves one shard from an open store. ``fanout`` has the consumers of its productions.

    It has more attributes than other classes because each is an owner of something; it has no state
    besides."""

    def __init__(
        self,
        identity: ShardIdentity,
        store: StateStore,
        fanout: Fanout,
        route: Route,
        limits: ShardLimits,
        make_operator: OperatorFactory,
        id_horizon_us: int | None,
        policies: Policies | None = None,
        opened: StoreRead | None = None,
    ) -> None:
        self.identity, self.store, self._route, self._limits = identity, store, route, limits
        self.overlay, self.meta = Overlay(store), read_meta(store)
        self.input_shares: dict[float, int] = {}
        self._tracing: ShardTracing | None = None
        self.instance_counts: InstanceCounts | None = None
        """Of a node whose keys are divided."""
        self._timers, marks = read_timers(store), read_high_water_marks(store)
        self.seen_ids = None
        if id_horizon_us is not None:
            self.seen_ids = SeenIds(
                store, self.overlay, id_horizon_us, identity.hashed, identity.shard
            )
        self.productions = ProductionBuilding(
            identity, self.meta, self.overlay, fanout, limits.given
        )
        self._inbox, self.outbox = (
            Inbox(marks, identity.hashed),
            Outbox(identity.token, limits.window),
        )
        self.commits = InFlight(identity.shard, self.meta, limits.straggler_us)
        self.verdicts = Verdicts(policies)
        self._unsent = read_productions(
            read_pending(store) if opened is None else opened.pending, fanout
        )
        for chunk in self._unsent:
            self.outbox.add(chunk)
        self.operator, self.avoided = make_operator(self), Avoided()
        self.watermark = ShardWatermark(
            self.meta,
            self._timers,
            self._inbox,
            self.outbox,
            self.commits,
            self.operator,
            self.input_shares,
        )
        self.admission = Admission(
            identity,
            limits,
            self._inbox,
            self.outbox,
            self._timers,
            self.operator,
            self.verdicts,
            self.commits,
            self.watermark,
            BundleSize(limits.bundle),
        )
        self._building = CommitBuilding(
            self,
            identity,
            limits,
            store,
            self.overlay,
            self.meta,
            self._timers,
            AppliedHighWaterMarks(marks),
            self.outbox,
            self.commits,
            self.watermark,
        )

    # --- receive ----------------------------------------------------------------------------------

    def offer(
        self, channel: ChannelName, epoch: int, index: int, batch: AnyBatch, reply_to: object
    ) -> DeliveryOutcome:
        """Take a delivery; it is applied by a later :meth:`run`."""
        return self._inbox.offer(channel, epoch, index, batch, reply_to)

    def inject(self, batch: Batch, reply_to: object) -> None:
        """Take records from outside; ``reply_to`` is answered once they are durable. Ids are kept
        by arrival time."""
        if self.seen_ids is not None and batch.timestamps:
            self.seen_ids.forget_before(batch.timestamps[0])
        self._inbox.push(Arrival(NO_CHANNEL, 0, 0, batch, reply_to, MAX_TIME))

    # --- dedup, run -------------------------------------------------------------------------------

    def run(self, now_us: int) -> PendingCommit | None:
        """Run one bundle: due timers, then arrivals; the result is applied to the local store, not
        durable yet."""
        step, self.commits.waiting = self.commits.waiting, None
        if step is None:
            step = self._begin(now_us)
        if step.asks:
            before = self.avoided.begin(step.bundle)
            if self.operator.ask(step.bundle, now_us):
                self.avoided.over(before)
                self.commits.waiting = step
                return None
            self._finish(step)
            self.avoided.over(before)
            if step.bundle.failures and self.verdicts.waits(step.bundle.failures, now_us, now_us):
                self.commits.waiting = step
                return None
        return self._commit(step)

    def _begin(self, now_us: int) -> Step:
        """Take the input of the next bundle."""
        work = self.watermark.work(now_us)
        # Before arrivals are taken: from then on only the commit holds the watermark.
        hold = self.watermark.lowest(work)
        arrivals, most_timers = self.admission.take(now_us, self.avoided.lone > 0)
        bundle = Bundle(
            self.commits.made + 1,
            now_us,
            self.watermark.input,
            arrivals,
            self.overlay,
            self._timers,
        )
        bundle.floor = max(self.watermark.floor, 0)
        bundle.most_timers = most_timers
        if arrivals:
            self._look_through(bundle)
        if self._tracing is not None:  # after copies were dropped: they are not worked on
            bundle.traced = self._tracing.bundle(bundle.number, bundle.arrivals)
        return Step(bundle, arrivals, hold, work.at, asks_for=self.operator.asks_for)

    def _look_through(self, bundle: Bundle) -> None:
        """Leave out arrivals that are not to be worked on."""
        if self.seen_ids is not None:
            self.seen_ids.drop_copies(bundle)
        take_replayed(bundle, self.identity.pipeline)
        if self.avoided.lone:
            put_aside(bundle, self.avoided, self.identity.pipeline)

    def _finish(self, step: Step) -> None:
        """Run the bundle."""
        bundle = step.bundle
        if self.outbox.done:
            self._building.forget_done()
        bundle.try_records()
        if self.instance_counts is not None:
            self.instance_counts.take(bundle.arrivals)
        self.operator.run(bundle)
        if bundle.most is not None:
            step.arrivals = self._inbox.put_back(step.arrivals, bundle.most)
        if self.operator.behind is not None:
            self.operator.behind(bundle)
        step.chunk, step.asks = self.productions.checkpoint(bundle), False
        bundle.take_counts()
        self.verdicts.take(bundle)

    # --- commit -----------------------------------------------------------------------------------

    def _commit(self, step: Step) -> PendingCommit | None:
        bundle, step_chunk = step.bundle, step.chunk
        for chunk in bundle.chunks:
            self.outbox.add(chunk)
            # reads of a source: read again after a crash, they are the same
            if not bundle.commit_before_sending:
                self.outbox.release(chunk, self._route)
        if step_chunk is not None:
            self.outbox.add(step_chunk)
        pending = self._building.build(step)
        if self._tracing is not None and pending is not None and bundle.traced is not None:
            self._tracing.wait(pending.number, bundle.traced)
        if pending is not None and pending.chunk is not None:
            # Held productions go to shards of this worker alone: sent to another one, they would be
            # applied there although a crash here may unmake them (mutation
            # productions_sent_before_commit).
            pending.chunk.held = not pending.weak
            pending.chunk.commit = 0 if pending.weak else pending.number
            self.outbox.release(pending.chunk, self._route)
        # those that came: an operator leaves in the bundle what it has not taken as a whole
        self.admission.bundle.note(step.arrivals, 0 if step_chunk is None else step_chunk.weight)
        return pending

    # --- ack, send: after the journal -------------------------------------------------------------

    def durable(self, pending: PendingCommit, now_us: int) -> list[Arrival]:
        """Route the productions and publish the effects of a durable commit; returns the arrivals
        that may be acked."""
        self.commits.settle(pending)
        if pending.chunk is not None:
            pending.chunk.held = False
        for chunk in pending.reads:
            chunk.commit = pending.number
            self.outbox.release(chunk, self._route)
        if self._tracing is not None:
            self._tracing.durable(pending.number)
        self.operator.durable(pending.number, now_us)
        self.avoided.durable(pending.number)
        if self.avoided.lone:
            self.avoided.ran_alone(count_of(pending.arrivals))
        return pending.arrivals

    # --- questions and news of the loop -----------------------------------------------------------

    def unfinished(self) -> int:
        """The amount of unfinished work: arrivals, commits, productions, and output that is not yet
        visible outside. A source at rest lets arrivals wait: they were not acknowledged to any
        client."""
        waiting = 0 if self.operator.paused else len(self._inbox.waiting)
        commits = len(self.commits.pending) + (self.commits.waiting is not None)
        return waiting + commits + self.outbox.unfinished + self.operator.unfinished()

    def forget_old_ids(self) -> None:
        """Drop duplicate marks that the watermark has left behind. A source has no watermark before
        it."""
        if self.seen_ids is not None and MIN_TIME < self.watermark.input < MAX_TIME:
            self.seen_ids.forget_before(self.watermark.input)

    # --- life -------------------------------------------------------------------------------------

    def avoid(self, avoided: Avoided) -> None:
        """Do not repeat the calls that earlier owners died of, or that did not return for them."""
        self.avoided = self.operator.avoided = avoided

    def trace(self, tracing: Tracing, is_source: bool) -> None:
        """Give traced records spans from now on."""
        identity = self.identity
        self._tracing = ShardTracing(
            tracing, identity.node, identity.shard, identity.token, identity.hashed, is_source
        )

    def start(self) -> None:
        """Begin to send the recovered productions. Called when this owner may act (the injector has
        its token)."""
        for chunk in self._unsent:
            self.outbox.release(chunk, self._route)
        self._unsent.clear()
        # No commit removed the old ids, so recovery found them again; perhaps no rising watermark
        # will remove them.
        self.forget_old_ids()

    def validate(self) -> None:
        """Raise InvariantError unless its parts agree with each other and with the store: a next
        owner would read the state that this one has in memory. For tests, between two calls: it
        reads much of the store."""
        self._inbox.validate()
        self.outbox.validate()
        self.commits.validate(self.meta)
        for queue in self._timers.values():
            queue.validate()
        floor = self.watermark.floor
        invariant(
            self.meta.floor <= floor,
            f"the stored floor {self.meta.floor} is above that of the shard, {floor}",
        )
        if self.commits.waiting is None:  # else a bundle has taken what the store does not have yet
            validate_store(self.store, self._timers, self._inbox, self.outbox, self.meta)
            if isinstance(self.operator, Validated):
                self.operator.validate(self.store)

    def checkpoint(self, path: str) -> None:
        """Copy the store as of the last commit, including productions in flight."""
        self.commits.checkpoint_stragglers()
        self.store.checkpoint(path)

    def close(self) -> None:
        """Release the operator's resources and the store."""
        self.operator.close()
        self.store.close()
