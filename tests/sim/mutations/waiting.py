"""Deliberate mistakes about records that wait in columns while their shards move."""

from __future__ import annotations

from typing import Any

from millwheel.core.columns.windows import GroupsKind
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.waiting.in_columns import WaitingOperator
from millwheel.engine.workers.state import column_segments
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=2, faults="merge move kill", workload="waiting")
def an_heir_lets_records_come_that_have_come() -> Context:
    """Of two shards that become one, the one that was behind tells how far both have come."""
    return replaced(column_segments, "_FIRED", (GroupsKind.KEPT,))


@mistake(within=2, workload="waiting")
def what_waits_in_columns_holds_no_watermark() -> Context:
    """What comes of it is late for who takes it."""

    def wrong(self: WaitingOperator, now_us: int) -> Any:
        return CallbackOperator.hold(self, now_us)

    return replaced(WaitingOperator, "hold", wrong)
