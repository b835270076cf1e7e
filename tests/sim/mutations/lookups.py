"""Deliberate mistakes in lookups under faults."""

from __future__ import annotations

from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.lookups import LookupOperator
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=30, workload="searched", first=42_000)
def a_bundle_runs_before_its_answers_have_come() -> Context:
    """The target is asked, and nobody waits for it."""
    right = LookupOperator.ask

    def wrong(self: LookupOperator, bundle: Bundle, now_us: int) -> bool:
        right(self, bundle, now_us)
        return False

    return replaced(LookupOperator, "ask", wrong)
