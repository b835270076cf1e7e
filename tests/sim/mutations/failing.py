"""Deliberate mistakes about steps in which too much fails, and about dead letters that are tried
again, and in lookups under faults."""

from __future__ import annotations

from typing import Any

from millwheel.core.model.ranges import KeyRange
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.loop.replaying import Replaying
from millwheel.engine.workers.loop.shard_handle import Served
from millwheel.engine.workers.operators.lookups import LookupOperator
from millwheel.engine.workers.shard.admission import Admission
from millwheel.engine.workers.shard.in_flight import Step
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20, faults="none", workload="letters")
def step_that_waits_is_forgotten() -> Context:
    """A step that waits for a verdict is not there any more when it comes."""

    def wrong(self: Admission, step: Step, now_us: int) -> int:
        self.commits.waiting = None
        return now_us

    return replaced(Admission, "_goes_on_at", wrong)


@mistake(within=60, workload="letters")
def step_that_waits_holds_no_watermark() -> Context:
    """The watermark passes what has been read, computed, and not sent."""
    return replaced(Step, "kept", lambda self: Hold())


@mistake(within=30, workload="letters", first=6)
def every_owner_replays_all_of_an_order() -> Context:
    """The numbering of an order is another one for each owner of a shard."""
    right = Replaying._offer

    def wrong(self: Replaying, order: ReplayOrder, served: Served, keys: KeyRange) -> None:
        right(
            self,
            ReplayOrder(f"{order.id}{served.shard.identity.token}", order.records),
            served,
            keys,
        )

    return replaced(Replaying, "_offer", wrong)


@mistake(within=30, workload="letters", first=10)
def replays_are_offered_to_no_later_owner() -> Context:
    """An order goes to the first owners of the shards alone."""
    right = Replaying.begin

    def wrong(self: Replaying, served: Served, entry: Any) -> None:
        if entry.token == 1:
            right(self, served, entry)

    return replaced(Replaying, "begin", wrong)


@mistake(within=30, workload="searched", first=42_000)
def a_bundle_runs_before_its_answers_have_come() -> Context:
    """The target is asked, and nobody waits for it."""
    right = LookupOperator.ask

    def wrong(self: LookupOperator, bundle: Bundle, now_us: int) -> bool:
        right(self, bundle, now_us)
        return False

    return replaced(LookupOperator, "ask", wrong)
