"""One shard as this worker serves it: the place where receive, dedup, run, commit, ack and send meet.

The order of durability is here and nowhere else:

    run()      → a commit (Prepared): applied to the local store, not yet durable. Shards of the same worker may have
                 its productions: their commits come behind it in the same journal, so none outlives it
    (journal)  → the runtime makes it durable together with those of other shards
    durable()  → only now: acks to the senders, productions to other workers, sink cuts published

Reads of a replayable source need no such wait: they are sent at once and their position is committed after
every consumer has applied them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.codec import Commit, encode_commit
from millwheel.core.formats.store_layout import CHANNEL, META, PENDING, encode_meta, number8, timer_key, timer_value
from millwheel.core.model.failures import counted
from millwheel.core.model.keys import key_hash
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.times import MAX_TIME, MIN_TIME, held_at
from millwheel.errors import invariant
from millwheel.ports import StateStore
from millwheel.workers.bundle.replayed import take_replayed
from millwheel.workers.bundle.turn import RECORD, TIMER, Hold, Operator, Turn
from millwheel.workers.delivery.high_water_marks import AppliedMarks
from millwheel.workers.delivery.inbox import Arrival, Inbox, Verdict
from millwheel.workers.delivery.outbox import Chunk, Outbox, Route
from millwheel.workers.delivery.routing import Fanout
from millwheel.workers.shard.bundle_sizes import BundleSize, ShardLimits
from millwheel.workers.shard.opening import read_marks, read_meta, read_productions, read_timers
from millwheel.workers.shard.prepared import Prepared
from millwheel.workers.shard.productions import Productions, ShardIdentity
from millwheel.workers.shard.seen_ids import SeenIds
from millwheel.workers.shard.step import Step
from millwheel.workers.shard.verdicts import Policies, Verdicts, looks_at
from millwheel.workers.state.overlay import Overlay

_WORTH_A_TURN = 256

OperatorFactory = Callable[["Shard"], Operator]


@dataclass(slots=True)
class _Progress:
    """Numbers of commits: made, and known to be durable. ``unsubmitted`` are not with the journal yet; somebody waits
    for so many ``urgent`` ones of them. ``floor`` is the durable one."""

    made: int = 0
    durable: int = 0
    floor: int = MIN_TIME
    unsubmitted: deque[Prepared] = field(default_factory=deque)
    in_flight: deque[Prepared] = field(default_factory=deque)
    urgent: int = 0


class Shard:
    """Serves one shard from an open store. ``fanout`` knows the consumers of what it produces."""

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
    ) -> None:
        self.identity = identity
        self.store = store
        self.overlay = Overlay(store)
        self.meta = read_meta(store)
        self.input_watermark = self.meta.watermark
        self.input_shares: dict[float, int] = {}
        self.busy_us = 0
        self._fanout = fanout
        self._route = route
        self._limits = limits
        self._progress = _Progress(self.meta.number, self.meta.number, self.meta.floor)
        marks = read_marks(store)
        self._inbox = Inbox(marks)
        self._applied = AppliedMarks(marks)
        self.outbox = Outbox(identity.token, limits.window)
        self._timers = read_timers(store)
        self._seen = None if id_horizon_us is None else SeenIds(store, self.overlay, id_horizon_us)
        self._floor = self.meta.floor
        self._unsent = read_productions(store, fanout)
        self.waiting: Step | None = None
        """A step that must not be committed before there is a verdict."""
        self.verdicts = Verdicts(policies)
        self._productions = Productions(identity, self.meta, self.overlay, fanout, limits.given)
        self._bundle = BundleSize(limits.bundle)
        self.operator = make_operator(self)
        self._speaks_at_floor: bool = getattr(self.operator, "speaks_at_floor", False)
        for chunk in self._unsent:
            self.outbox.add(chunk)

    # --- receiving ---------------------------------------------------------------------------------------

    def offer(self, channel: str, epoch: int, index: int, batch: AnyBatch, route: object) -> Verdict:
        """A delivery arrived; it is applied by a later :meth:`run`."""
        return self._inbox.offer(channel, epoch, index, batch, route)

    def inject(self, batch: Batch, route: object) -> None:
        """Records from outside; ``route`` is answered once they are durable. Ids are kept by when they came."""
        if self._seen is not None and batch.timestamps:
            self._seen.forget_before(batch.timestamps[0])
        self._inbox.push(Arrival("", 0, 0, batch, route, MAX_TIME))

    # --- working -----------------------------------------------------------------------------------------

    def runnable(self, now: int, patient: bool = False) -> bool:
        """True when :meth:`run` would find something to do and has room to do it. While the journal writes, a
        ``patient`` shard leaves a few arrivals where they are: they could not be durable any sooner, and a commit
        of many costs little more than one of few. (Weak productions do not wait to be durable.)"""
        limit = self._limits.weak_in_flight if self.identity.weak else self._limits.in_flight
        if len(self._progress.in_flight) >= limit or self._waits(now):
            return False
        if self.waiting is not None:
            return True
        if self._congested():
            return self._inbox.waits_for(self._circles)
        if self._takes_arrivals(now, patient) or self.outbox.unsettled:
            return True
        if self._timers[Domain.EVENT].earliest() < self.input_watermark or self.operator.wakes_at(now) <= now:
            return True
        if self._processing_due(now) or self.operator.due_at() < self.input_watermark:
            return True
        return self._floor_matters() and self._lowest(now, self._work(now)).at > self.meta.floor

    def _takes_arrivals(self, now: int, patient: bool) -> bool:
        records = self._inbox.records
        if not len(self._inbox) or (patient and not self.identity.weak and records < _WORTH_A_TURN):
            return False
        return self.operator.appetite(max(1, records), now, self.input_watermark) > 0

    def wakes_at(self, now: int) -> int:
        """The wall clock at which it must be looked at again, if nothing else happens."""
        if self.waiting is not None:
            return looks_at(self.waiting.turn.now, now)
        passed = min(self._timers[Domain.PROCESSING].earliest(), MAX_TIME - 1) + 1
        return min(self.operator.wakes_at(now), passed)

    def run(self, now: int) -> Prepared | None:
        """One turn: due timers, then arrivals; the result is applied to the local store, not durable yet."""
        if self.waiting is not None:
            step, self.waiting = self.waiting, None
            return self._go_on(step)
        work = self._work(now)
        hold = self._lowest(now, work)
        arrivals = self._take(now, congested := self._congested())
        turn = Turn(self._progress.made + 1, now, self.input_watermark, arrivals, self.overlay, self._timers)
        turn.floor = max(self._floor, 0)
        turn.most_timers = 0 if congested and not arrivals else self._limits.timers
        turn.arrivals = self._deduplicated(turn)
        take_replayed(turn, self.identity.pipeline)
        self._forget_done()
        self.operator.run(turn)
        turn.take_counts()
        step = Step(turn, arrivals, hold, work.at, self._productions.checkpoint(turn))
        turn.try_(RECORD, sum(len(arrival.batch) for arrival in turn.arrivals))
        turn.try_(TIMER, len(turn.due))
        self.verdicts.take(turn)
        if turn.failures and self.verdicts.waits(turn.failures, now, now):
            self.waiting = step
            return None
        return self._go_on(step)

    def _go_on(self, step: Step) -> Prepared | None:
        turn = step.turn
        for chunk in turn.chunks:
            self.outbox.add(chunk)
            if not turn.commit_before_sending:
                self.outbox.release(chunk, self._route)
        prepared = self._prepare(turn, step.arrivals, step.hold, step.chunk)
        made = step.chunk.weight if step.chunk is not None else 0
        self._bundle.learn(sum(arrival.batch.weight for arrival in turn.arrivals), made)
        if prepared is not None:
            prepared.work_us = step.work_us
            prepared.reads = turn.chunks if turn.commit_before_sending else []
        return prepared

    def _waits(self, now: int) -> bool:
        step = self.waiting
        return step is not None and self.verdicts.waits(step.turn.failures, step.turn.now, now)

    def _congested(self) -> bool:
        return self.outbox.pending_weight >= self._limits.pending

    def _circles(self, channel: str) -> bool:
        """True for what follows from our own productions, which wait for it: it is taken however many wait."""
        return channel.rpartition("-")[0] in self.identity.circle

    def _processing_due(self, now: int) -> bool:
        queue = self._timers[Domain.PROCESSING]
        return bool(queue) and (queue.earliest() < now or self.input_watermark == MAX_TIME)

    def _take(self, now: int, congested: bool) -> list[Arrival]:
        """The arrivals of a turn: none while more timers are due than fire in one, because those come first."""
        wanted = self.operator.appetite(max(1, self._inbox.records), now, self.input_watermark)
        crowded = self._timers[Domain.EVENT].more_due_than(self._limits.timers, self.input_watermark)
        if crowded or not wanted or not len(self._inbox):
            return []
        return self._inbox.take(min(wanted, self._bundle.most), self._circles if congested else None)

    def _deduplicated(self, turn: Turn) -> list[Arrival]:
        if self._seen is None:
            return turn.arrivals
        kept = []
        for arrival in turn.arrivals:
            if arrival.batch.ids is not None and len(arrival.batch):
                places = self._seen.fresh(arrival.batch)
                if dropped := len(arrival.batch) - len(places):
                    turn.count(f"duplicates.{arrival.batch.stream}", dropped)
                    arrival = replace(arrival, batch=arrival.batch.pick(places), duplicates=dropped)
            kept.append(arrival)
        return kept

    # --- committing --------------------------------------------------------------------------------------

    def _prepare(self, turn: Turn, arrivals: list[Arrival], hold: Hold, chunk: Chunk | None) -> Prepared | None:
        if chunk is not None:
            self.outbox.add(chunk)
        self._write_timers()
        for arrival in arrivals:
            if last := arrival.batch.last_seq:
                self.overlay.put(CHANNEL + arrival.channel.encode(), self._applied.after(arrival.channel, last))
        floor = max(self._floor, hold.at if hold.at < MAX_TIME else MIN_TIME)
        rises = self._floor_matters() and floor > self.meta.floor
        if rises:
            self.meta.floor = self._floor = floor
        read_again = turn.positions_only and not turn.commit_before_sending
        write_by = turn.now + self._limits.company_us if self.identity.weak or read_again else 0
        if self._changes_nothing(chunk, turn, rises):
            if not arrivals:
                return None
            return self._enlist(Prepared(self, self._progress.made, None, arrivals, None, hold, write_by=write_by))
        for given, by in turn.counters.items():
            name = counted(given, self.meta.counters)
            self.meta.counters[name] = self.meta.counters.get(name, 0) + by
        self._progress.made += 1
        self.meta.number = self._progress.made
        self.meta.watermark, self.meta.closed = turn.watermark, None
        self.overlay.put(META, encode_meta(self.meta))
        puts, deletes = self.overlay.take()
        self.store.apply(puts, deletes)
        weak = self.identity.weak and chunk is not None
        prepared = Prepared(
            self,
            self.meta.number,
            Commit(self.identity.shard, self.identity.token, self.meta.number, puts, deletes),
            arrivals,
            chunk,
            Hold() if read_again else hold,  # consumers have it all: to read it again changes nothing
            weak=weak,
            since=turn.now,
            write_by=write_by,
            floor=self.meta.floor,
        )
        if chunk is not None:
            chunk.held = not weak
            self.outbox.release(chunk, self._route)
        return self._enlist(prepared)

    def _changes_nothing(self, chunk: Chunk | None, turn: Turn, rises: bool) -> bool:
        # Productions need a commit even where nothing is remembered: a weak one that is slow is checkpointed by it.
        return chunk is None and not self.overlay and not turn.counters and not rises

    def _enlist(self, prepared: Prepared) -> Prepared:
        self._progress.in_flight.append(prepared)
        self._progress.unsubmitted.append(prepared)
        self._progress.urgent += not prepared.write_by
        return prepared

    def submittable(self, now: int) -> Iterator[tuple[Prepared, bytes]]:
        """Commits that may go to the journal now, in order, with their entry (b"": nothing to write)."""
        waiting = self._progress.unsubmitted
        while waiting:
            prepared = waiting[0]
            if prepared.weak and prepared.chunk is not None and not prepared.chunk.finished:
                if now < prepared.since + self._limits.straggler_us:
                    return
                prepared.checkpoint_chunk()
            waiting.popleft()
            self._progress.urgent -= not prepared.write_by
            yield prepared, b"" if prepared.commit is None else encode_commit(prepared.commit)

    def submits_at(self) -> int:
        """When the next commit must be written (wall clock): at once if somebody waits for it, a weak one at the latest
        when a consumer has not answered for too long."""
        waiting = self._progress.unsubmitted
        if not waiting:
            return MAX_TIME
        first = waiting[0]
        if first.weak and first.chunk is not None and not first.chunk.finished:
            return first.since + self._limits.straggler_us
        return 0 if self._progress.urgent else first.write_by

    def checkpoint(self, path: str) -> None:
        """Copy the store as of the last commit made. Weak productions on their way go into it: a recovery from the
        copy skips their commits, which would bring them along if their consumers take too long."""
        for prepared in self._progress.unsubmitted:
            if prepared.weak and prepared.chunk is not None and not prepared.chunk.finished:
                prepared.checkpoint_chunk()
        self.store.checkpoint(path)

    def _write_timers(self) -> None:
        for domain, queue in self._timers.items():
            for (key, tag), at in queue.take_changes().items():
                place = timer_key(key, key_hash(key), domain, tag)
                if at is None:
                    self.overlay.delete(place)
                else:
                    self.overlay.put(place, timer_value(at, queue.cause_of(key, tag)))

    def _forget_done(self) -> None:
        """Productions that every consumer has applied leave the store."""
        for chunk in self.outbox.take_done():
            if chunk.stored:
                self.overlay.delete(PENDING + number8(chunk.number))

    # --- after the journal -------------------------------------------------------------------------------

    def durable(self, prepared: Prepared, now: int) -> list[Arrival]:
        """The commit is durable: route its productions, publish its effects; the arrivals that may be acked."""
        invariant(
            self._progress.in_flight[0] is prepared, f"{self.identity.shard}: commits became durable out of order"
        )
        self._progress.in_flight.popleft()
        self._progress.durable = max(self._progress.durable, prepared.number)
        self._progress.floor = max(self._progress.floor, prepared.floor)
        if prepared.chunk is not None:
            prepared.chunk.held = False
        for chunk in prepared.reads:
            self.outbox.release(chunk, self._route)
        self.operator.durable(prepared.number, now)
        return prepared.arrivals

    @property
    def durable_number(self) -> int:
        """The last commit known to be durable."""
        return self._progress.durable

    @property
    def made_number(self) -> int:
        """The last commit applied to the local store."""
        return self._progress.made

    def settled(self) -> bool:
        """True when every commit made is durable."""
        return not self._progress.in_flight

    def sources_ended(self) -> None:
        """Only what is still on its way will come: an operator that waits for more need not wait long."""
        if ended := getattr(self.operator, "sources_ended", None):
            ended()

    def unrest(self) -> int:
        """How much of what came is unfinished: arrivals, commits, productions, and what is not yet visible outside. A
        source at rest lets arrivals wait: nobody was told that they were taken."""
        waiting = 0 if getattr(self.operator, "paused", False) else len(self._inbox)
        unseen: int = getattr(self.operator, "unrest", int)()
        waiting += self.waiting is not None
        return waiting + len(self._progress.in_flight) + self.outbox.unfinished + unseen

    def forget_old_ids(self) -> None:
        """Drop duplicate marks that the watermark has left behind. A source has no watermark before it."""
        if self._seen is not None and MIN_TIME < self.input_watermark < MAX_TIME:
            self._seen.forget_before(self.input_watermark)

    # --- the watermark -----------------------------------------------------------------------------------

    def watermark(self, now: int) -> Hold:
        """No output before this can come any more, and what keeps it from being later."""
        hold = self._lowest(now, self._work(now))
        for prepared in self._progress.in_flight:
            if prepared.hold.at < hold.at:
                hold = prepared.hold
        if self.waiting is not None and (kept := self.waiting.kept()).at < hold.at:
            hold = kept
        if self._floor_matters() and self._progress.floor < hold.at:
            hold = Hold(self._progress.floor, "the floor of processing-time timers, whose rise is not durable yet")
        if hold.at < MAX_TIME:
            self._floor = max(self._floor, hold.at)
        return Hold(hold.at, self._in_words(hold))

    def _floor_matters(self) -> bool:
        """True while processing-time timers of callbacks wait. What they produce is emitted at the floor, not
        behind a published watermark. So no more may be published than a next owner, too, will know of."""
        return self._speaks_at_floor and bool(self._timers[Domain.PROCESSING])

    def share_watermarks(self, now: int) -> dict[float, int]:
        """What counts for the percentile watermarks of this node, by share: the lowest of its own work, in place of the
        low watermark of the input its percentile watermark."""
        if not self.input_shares:
            return {}
        work = min([self._work(now).at, *(prepared.work_us for prepared in self._progress.in_flight)])
        work = work if self.waiting is None else min(work, self.waiting.work_us, self.waiting.kept().at)
        lowest = {share: min(work, max(at, self.input_watermark)) for share, at in self.input_shares.items()}
        if self._timers[Domain.PROCESSING]:
            return {share: self._floor if at == MAX_TIME else at for share, at in lowest.items()}
        return lowest

    def _lowest(self, now: int, work: Hold) -> Hold:
        lowest = work if work.at < self.input_watermark else Hold(self.input_watermark, "input")
        if lowest.at == MAX_TIME and self._timers[Domain.PROCESSING]:
            return Hold(self._floor, "processing-time timers that are still to fire")
        return lowest

    def _work(self, now: int) -> Hold:
        """What is to be done here, whatever may still come."""
        at, holder = self._inbox.min_timestamp(), "records waiting in the inbox"
        if (production := self.outbox.min_timestamp()) < at:
            at, holder = production, "production"
        if (timer := self._timers[Domain.EVENT].earliest()) < at:
            at, holder = timer, "timer"
        hold = self.operator.hold(now)
        return hold if hold.at < at else Hold(held_at(at), holder)

    def _in_words(self, hold: Hold) -> str:
        if hold.holder == "timer" and (first := self._timers[Domain.EVENT].first()):
            return f"timer {first.tag!r} of key {first.key!r} at {first.at}"
        if hold.holder == "production":
            return self.outbox.holder()
        return hold.holder

    # --- recovery ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to send what recovery found; called when this owner may act (its token is known)."""
        for chunk in self._unsent:
            self.outbox.release(chunk, self._route)
        self._unsent.clear()

    def close(self) -> None:
        """Release the operator's resources and the store."""
        self.operator.close()
        self.store.close()
