"""The event-time progress of one shard, and the hold that keeps it back."""

from __future__ import annotations

from millwheel.core.formats.store_layout import Meta
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, held_at
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.delivery.inbox import Inbox
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.shard.in_flight import InFlight
from millwheel.errors import InvariantError


class ShardWatermark:
    """``input`` is the published watermark of the shard's input; ``shares`` holds its percentile
    watermarks, by share. ``floor`` is the highest watermark that may have been published."""

    def __init__(
        self,
        meta: Meta,
        timers: dict[Domain, TimerQueue],
        inbox: Inbox,
        outbox: Outbox,
        commits: InFlight,
        operator: Operator,
        shares: dict[float, int],
    ) -> None:
        self.input = meta.watermark
        self.floor = meta.floor
        self._meta = meta
        self._timers = timers
        self._inbox = inbox
        self._outbox = outbox
        self._commits = commits
        self._operator = operator
        self.shares = shares
        self._emits_at_floor = operator.emits_at_floor
        self._emits_late = operator.emits_late
        self.has_floor = self._emits_at_floor or self._emits_late
        """Whether :meth:`floor_matters` at any time."""

    # --- queries ----------------------------------------------------------------------------------

    def work(self, now_us: int) -> Hold:
        """The earliest pending work, without future input."""
        at, holder = MAX_TIME, "records waiting in the inbox"
        if self._inbox.waiting:
            at = self._inbox.min_timestamp()
        if self._outbox.open or self._outbox.unsettled:
            production = self._outbox.min_timestamp()
            if production < at:
                at, holder = production, "production"
        if (timer := self._timers[Domain.EVENT].earliest) < at:
            at, holder = timer, "timer"
        hold = self._operator.hold(now_us)
        return hold if hold.at < at or at == MAX_TIME else Hold(held_at(at), holder)

    def lowest(self, work: Hold) -> Hold:
        """The earliest pending work, or future input."""
        lowest = work if work.at < self.input else Hold(self.input, "input")
        if lowest.at == MAX_TIME and self._timers[Domain.PROCESSING]:
            return Hold(self.floor, "processing-time timers that are still to fire")
        return lowest

    def hold(self, now_us: int) -> Hold:
        """The time before which no output can come, with the hold that keeps it back."""
        held = self.held(now_us)
        return Hold(held.at, self.in_words(held), held.idle_us)

    def held(self, now_us: int) -> Hold:
        """The same without its words: most looks are for the time alone."""
        hold = self.lowest(self.work(now_us))
        if self._commits.pending or self._commits.waiting is not None:
            hold = self._commits.lowest(hold)
        if self._commits.floor < hold.at < IDLE_TIME and self.floor_matters():
            # Beyond the durable floor, the next owner's timers and late records would be emitted
            # behind a watermark that others have seen: late records of our own making
            # (tests/unit/engine/workers/shard/test_watermark.py).
            hold = Hold(
                self._commits.floor,
                "the floor of timers and late records, whose rise is not durable yet",
            )
        return hold

    def floor_matters(self) -> bool:
        """True while processing-time timers of callbacks wait, and where late records are emitted.
        Both leave at the floor or later, not behind a published watermark. So no more may be
        published than a next owner will find in the store."""
        return self._emits_late or (self._emits_at_floor and bool(self._timers[Domain.PROCESSING]))

    def rises(self, now_us: int) -> bool:
        """True when a commit is needed for the floor alone."""
        return (
            self.floor_matters()
            and self._meta.floor < self.lowest(self.work(now_us)).at < IDLE_TIME
        )

    def of_shares(self, now_us: int) -> dict[float, int]:
        """The shard's times for the percentile watermarks of this node, by share: the lowest of its
        own work and, in place of the low watermark of the input, its percentile watermark."""
        work = self._commits.lowest_work(self.work(now_us).at)
        lowest = {share: min(work, max(at, self.input)) for share, at in self.shares.items()}
        if self._timers[Domain.PROCESSING]:
            return {share: self.floor if at == MAX_TIME else at for share, at in lowest.items()}
        return lowest

    def in_words(self, hold: Hold) -> str:
        """The reason of a hold of :meth:`held`, for people."""
        if hold.holder == "timer" and (first := self._timers[Domain.EVENT].first()):
            return f"timer {first.tag!r} of key {first.key!r} at {first.at}"
        if hold.holder == "production":
            return self._outbox.holder()
        return hold.holder

    # --- commands ---------------------------------------------------------------------------------

    def reported(self, at: int) -> None:
        """Note that this watermark is reported: no output may be emitted before it any more."""
        # The pair of `held`: a next owner without this floor would emit behind it.
        if self._commits.floor < at < IDLE_TIME and self.floor_matters():
            raise InvariantError(
                f"{at} would be reported, but the durable floor is {self._commits.floor}"
            )
        if at < IDLE_TIME:
            self.floor = max(self.floor, at)

    def commit_floor(self, at: int) -> bool:
        """Note the commit of a bundle that was held at ``at``: True when that raises the floor that
        the next owner will find."""
        floor = max(self.floor, at if at < IDLE_TIME else MIN_TIME)
        if not self.floor_matters() or floor <= self._meta.floor:
            return False
        self._meta.floor = self.floor = floor
        return True
