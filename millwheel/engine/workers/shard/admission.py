"""Decides whether a shard runs a bundle now, and how many waiting records it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from millwheel.core.columns.few_groups import FEW_RECORDS
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.model.names import ChannelName, producer_of
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.combining import CombineLimits
from millwheel.engine.workers.delivery.inbox import Arrival, Inbox
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.shard.in_flight import InFlight, Step
from millwheel.engine.workers.shard.productions import ShardIdentity
from millwheel.engine.workers.shard.verdicts import Verdicts, looks_at
from millwheel.engine.workers.shard.watermark import ShardWatermark

_WORTH_A_BUNDLE = 256  # records for which a commit is worth its bytes while the journal writes


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """The limits of a shard's memory and of the size of its commits, in records of up to 1 kB: a
    larger one counts as several. ``given`` are the pipeline's own limits. Sources commit their
    positions every ``settle_us``, since that costs as much for one read as for many; the rest is
    read again after a crash. A commit that nothing waits for (weak productions and reads of a
    source are sent before it) is delayed by up to ``company_us``, to be written with others.
    ``combine``: when groups are sent in place of records. Of reads of ``columns_from`` records and
    more, sources make columns for the consumers that take them; fewer are as quick one by one.
    Aggregations group bundles of less than ``rows_below`` records in rows."""

    bundle: int = 20_000
    timers: int = 5_000
    window: int = 40_000
    pending: int = 100_000
    in_flight: int = 4
    weak_in_flight: int = 64
    straggler_us: int = 1_000_000
    settle_us: int = 20_000
    gather_us: int = 20_000
    combine: CombineLimits = field(default_factory=CombineLimits)
    columns_from: int = 1_000
    rows_below: int = FEW_RECORDS
    given: Limits = DEFAULTS


class BundleSize:
    """The input of a bundle. Where little input makes much output, bundles take less, so that no
    commit is far too large. All numbers are weights; ``most`` is the limit of the next bundle."""

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle
        self.most = bundle

    def note(self, arrivals: Sequence[Arrival], output_weight: int) -> None:
        """Note the input and output of a bundle."""
        if output_weight <= self._bundle and self.most == self._bundle:
            return
        input_weight = sum([arrival.batch.weight for arrival in arrivals])
        if output_weight > self._bundle and output_weight > input_weight:
            self.most = max(input_weight * self._bundle // output_weight, 1)
        elif input_weight and self.most < self._bundle:
            self.most = min(self.most * 2, self._bundle)


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
        # No time makes room where there is none: a commit that becomes durable does, or an ack.
        limits = self.limits
        most = limits.weak_in_flight if self.identity.weak else limits.in_flight
        if len(self.commits.pending) >= most:
            return MAX_TIME
        if self.commits.waiting is not None:
            return self._goes_on_at(self.commits.waiting, now_us)
        if self.congested():
            return now_us if self.inbox.waits_for(self._circles) else MAX_TIME
        watermark, wall_timers = self.watermark.input, self.timers[Domain.PROCESSING]
        if (
            self._takes_arrivals(now_us, patient)
            or self.outbox.unsettled
            or self.timers[Domain.EVENT].earliest < watermark
            or (watermark == MAX_TIME and wall_timers.earliest < MAX_TIME)
            or self.operator.due_at() < watermark
            or (self.watermark.has_floor and self.watermark.rises(now_us))
        ):
            return now_us
        passed = min(wall_timers.earliest, MAX_TIME - 1) + 1
        return min(passed, self.operator.wakes_at(now_us))

    def _goes_on_at(self, step: Step, now_us: int) -> int:
        if step.asks:
            return self.operator.asks_at()
        begun_us = step.bundle.now_us
        waits = self.verdicts.waits(step.bundle.failures, begun_us, now_us)
        return looks_at(begun_us, now_us) if waits else now_us

    def congested(self) -> bool:
        """True if too many productions are in flight for any to be added."""
        return self.outbox.pending_weight >= self.limits.pending

    def take(self, now_us: int, lone: bool = False) -> tuple[list[Arrival], int]:
        """The arrivals of a bundle, and how many timers may fire in it. No arrivals while more
        timers are due than fire in one, because those come first; while records run ``lone``, a
        single one, and none while timers are due: it is to be alone in progress."""
        congested = self.congested()
        arrivals = self._arrivals(now_us, lone, congested) if self.inbox.waiting else []
        return arrivals, 0 if congested and not arrivals else self.limits.timers

    def _arrivals(self, now_us: int, lone: bool, congested: bool) -> list[Arrival]:
        timers, watermark = self.timers[Domain.EVENT], self.watermark.input
        limit = self.operator.intake(max(1, self.inbox.records), now_us, watermark)
        each = self.operator.due_with(timers.earliest, watermark)
        before = 0 if lone else self.limits.timers // each
        if not limit or timers.more_due_than(before, watermark):
            return []
        accepts = self._circles if congested else None
        if lone:
            return self.inbox.take_one(accepts)
        return self.inbox.take(min(limit, self.bundle.most), accepts)

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
