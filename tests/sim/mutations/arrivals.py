"""Deliberate mistakes about times of arrival."""

from __future__ import annotations

from typing import Any

from millwheel.engine.workers.sources.arrivals import ArrivalClock, Arrivals
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=2, workload="arriving", faults="kill slow-disk power", first=23)
def arrivals_sent_before_they_are_stored() -> Context:
    """Records are sent before their time is durable, so that a new owner gives them another one."""
    right = Arrivals.extend

    def wrong(self: Arrivals, *read: Any) -> bool:
        right(self, *read)
        return False

    return replaced(Arrivals, "extend", wrong)


@mistake(within=2, workload="arriving", first=24)
def arrivals_go_by_the_clock_of_the_owner() -> Context:
    """A new owner whose clock is behind gives times that the watermark has passed."""
    right = ArrivalClock.move

    def wrong(self: ArrivalClock, now_us: int, overlay: Any) -> int:
        self.at_us = now_us
        return right(self, now_us, overlay)

    return replaced(ArrivalClock, "move", wrong)


@mistake(within=1, workload="injected", faults="clock kill kill-again move", first=18)
def injected_records_arrive_by_the_clock_of_the_owner() -> Context:
    """The same where programs send the records."""
    return arrivals_go_by_the_clock_of_the_owner()


@mistake(within=2, workload="arriving", faults="kill", first=24)
def times_of_arrival_are_forgotten() -> Context:
    """A new owner does not look for the times that records had."""
    right = Arrivals.__init__

    def wrong(self: Arrivals, *parts: Any) -> None:
        right(self, *parts)
        self._runs = []

    return replaced(Arrivals, "__init__", wrong)


@mistake(within=3, workload="arriving", faults="kill")
def records_read_again_do_not_hold_the_clock() -> Context:
    """After a crash the watermark follows the clock, though what was sent is read again with
    earlier times."""
    return replaced(Arrivals, "reached_us", lambda self, position: self._clock.at_us)
