"""Deliberate mistakes in watermarks."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.adapters.clock import SteadyClock
from millwheel.control.injector.range_index import RangeIndex
from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.shard.watermark import ShardWatermark
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20)
def watermark_ahead_of_work() -> Context:
    """A shard reports its input watermark, whatever it still has to do."""
    return replaced(ShardWatermark, "held", lambda self, now_us: Hold(self.input, "input"))


@mistake(within=20)
def watermark_ahead_of_productions() -> Context:
    """Productions on their way do not hold the watermark."""
    return replaced(Outbox, "min_timestamp", lambda self: MAX_TIME)


@mistake(within=40)
def watermark_reported_before_commit() -> Context:
    """What is applied but not durable does not hold the watermark, nor do its productions."""

    def of_the_sent(self: Outbox) -> int:
        return min(
            (chunk.min_timestamp for chunk in self.open.values() if chunk.open_parts),
            default=MAX_TIME,
        )

    def held(self: ShardWatermark, now_us: int) -> Hold:
        with replaced(Outbox, "min_timestamp", of_the_sent):
            return self.lowest(self.work(now_us))

    return replaced(ShardWatermark, "held", held)


@mistake(within=100, faults="zombie", workload="numbers", first=27)
def token_not_checked() -> Context:
    """The injector believes whoever reports a shard."""
    return replaced(RangeIndex, "valid_rows", lambda self, rows, tokens: rows)


@mistake(within=40, faults="clock")
def wall_clock_believed() -> Context:
    """A worker waits for times of a clock that was set back."""
    return replaced(SteadyClock, "now_us", lambda self: self._clock.now_us())


@mistake(within=1, faults="none", first=451196)
def each_version_has_the_time_of_the_first() -> Context:
    """A new version comes at a time that the watermark has passed, as what takes the one before it
    back may, and it may not."""
    right = ChangeLogMachine._pane
    first: dict[Key, int] = {}

    def wrong(self: ChangeLogMachine, own: Any, window: Any, key: Key, *given: Any) -> Any:
        pane = right(self, own, window, key, *given)
        return msgspec.structs.replace(pane, timestamp=first.setdefault(key, pane.timestamp))

    return replaced(ChangeLogMachine, "_pane", wrong)
