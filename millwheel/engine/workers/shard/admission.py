"""Decides whether a shard runs a bundle now, and how many waiting records it takes."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.model.names import ChannelName, producer_of
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.inbox import Arrival, Inbox
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.shard.bundle_sizes import BundleSize, ShardLimits
from millwheel.engine.workers.shard.in_flight import InFlight
from millwheel.engine.workers.shard.pending_commit import Step
from millwheel.engine.workers.shard.productions import ShardIdentity
from millwheel.engine.workers.shard.verdicts import Verdicts, looks_at
from millwheel.engine.workers.shard.watermark import ShardWatermark

_WORTH_A_BUNDLE = 256  # records for which a commit is worth its bytes while the journal writes


@dataclass(frozen=True, slots=True)
class Admission:
    """Only reads state that belongs to others. Its one action is to notify the operator of waiting
    records."""

    identity: ShardIdentity
    limits: ShardLimits
    inbox: Inbox
    outbox: Outbox
    timers: dict[Domain, TimerQueue]
    operator: Operator
    verdicts: Verdicts
    commits: InFlight
    watermark: ShardWatermark
    bundle: BundleSize

    def runnable(self, now_us: int, patient: bool = False) -> bool:
        """Whether a bundle can run now, see :meth:`runs_at`."""
        return self.runs_at(now_us, patient) <= now_us

    def runs_at(self, now_us: int, patient: bool = False) -> int:
        """When a bundle would find something to do and has room to do it, if nothing else happens
        (wall clock; MAX_TIME: never). While the journal writes, a ``patient`` shard leaves a few
        arrivals where they are: they could not be durable any sooner, and a commit of many costs
        little more than one of few. (Weak productions do not wait to be durable.)"""
        # Where there is no room, no time makes any: a commit that is durable does, or an ack.
        if self.commits.full(
            self.limits.weak_in_flight if self.identity.weak else self.limits.in_flight
        ):
            return MAX_TIME
        if self.commits.waiting is not None:
            return self._goes_on_at(self.commits.waiting, now_us)
        if self.congested():
            return now_us if self.inbox.waits_for(self._circles) else MAX_TIME
        watermark, wall_timers = self.watermark.input, self.timers[Domain.PROCESSING]
        if (
            self._takes_arrivals(now_us, patient)
            or self.outbox.unsettled
            or self.timers[Domain.EVENT].earliest() < watermark
            or (watermark == MAX_TIME and wall_timers)
            or self.operator.due_at() < watermark
            or (self.watermark.has_floor and self.watermark.rises(now_us))
        ):
            return now_us
        passed = min(wall_timers.earliest(), MAX_TIME - 1) + 1
        return min(passed, self.operator.wakes_at(now_us))

    def _goes_on_at(self, step: Step, now_us: int) -> int:
        if step.asks:
            return self.operator.asks_at()
        begun_us = step.bundle.now_us
        waits = self.verdicts.waits(step.bundle.failures, begun_us, now_us)
        return looks_at(begun_us, now_us) if waits else now_us

    def congested(self) -> bool:
        """True if so many productions are in flight that none may be added."""
        return self.outbox.pending_weight >= self.limits.pending

    def take(self, now_us: int, congested: bool) -> list[Arrival]:
        """The arrivals of a bundle: none while more timers are due than fire in one, because those
        come first."""
        if not self.inbox.waiting:
            return []
        timers, watermark = self.timers[Domain.EVENT], self.watermark.input
        limit = self.operator.intake(max(1, self.inbox.records), now_us, watermark)
        each = self.operator.due_with(timers.earliest(), watermark)
        if not limit or timers.more_due_than(self.limits.timers // each, watermark):
            return []
        return self.inbox.take(min(limit, self.bundle.most), self._circles if congested else None)

    def take_one(self, now_us: int, congested: bool) -> list[Arrival]:
        """As :meth:`take`, but a single record, and none while timers are due: it is to be alone in
        progress."""
        limit = self.operator.intake(max(1, self.inbox.records), now_us, self.watermark.input)
        if not limit or self.timers[Domain.EVENT].more_due_than(0, self.watermark.input):
            return []
        return self.inbox.take_one(self._circles if congested else None)

    def _takes_arrivals(self, now_us: int, patient: bool) -> bool:
        records = self.inbox.records
        if not self.inbox.waiting or (
            patient and not self.identity.weak and records < _WORTH_A_BUNDLE
        ):
            return False
        # While the journal writes, a few records do not count as waiting yet: their cut could not
        # be durable sooner.
        self.operator.records_wait(now_us)
        return self.operator.intake(max(1, records), now_us, self.watermark.input) > 0

    def _circles(self, channel: ChannelName) -> bool:
        """True for results of our own productions, which wait for them: they are always taken."""
        # Without it, shards that send to each other fill up and wait for each other's acks for
        # ever.
        return producer_of(channel) in self.identity.circle
