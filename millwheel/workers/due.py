"""Which timers of a shard are due."""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.records import Domain
from millwheel.core.timers import Due, TimerQueue
from millwheel.core.times import MAX_TIME


def due_timers(timers: Mapping[Domain, TimerQueue], watermark: int, now: int, most: int) -> list[Due]:
    """Those that their clocks have passed, ``most`` of them at most, taken from their queues. Once event time has
    ended, the wall clock has passed everything, too."""
    due: list[Due] = []
    if not any(timers.values()):
        return due
    clocks = {Domain.EVENT: watermark, Domain.PROCESSING: MAX_TIME if watermark == MAX_TIME else now}
    for domain, clock in clocks.items():
        while len(due) < most and (timer := timers[domain].pop_due(clock)):
            due.append(timer)
    return due
