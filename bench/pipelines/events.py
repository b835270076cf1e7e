"""Part B: running mean and variance of the cost of each ad; a cost that is far away is told."""

from __future__ import annotations

import math

import msgspec

from millwheel import Computation, Context, Record, ValueState

LEAST, DEVIATIONS = 30, 4.0


class Event(msgspec.Struct):
    """What part B needs of a record."""

    event_id: str
    ad_id: int
    cost: float
    ts: int


class Moments(msgspec.Struct, array_like=True):
    """Welford's running moments."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0


class Outliers(Computation):
    """Tells a cost that is more than four standard deviations away from the mean of the ad's
    earlier records."""

    moments = ValueState(Moments, default=Moments)

    def process_record(self, ctx: Context, record: Record[Event]) -> None:
        moments, cost = self.moments.get(), record.value.cost
        if moments.count >= LEAST:
            deviation = math.sqrt(moments.squares / (moments.count - 1))
            if deviation > 0 and abs((cost - moments.mean) / deviation) > DEVIATIONS:
                event, z = record.value, (cost - moments.mean) / deviation
                ctx.produce("outliers", {"event_id": event.event_id, "ad_id": event.ad_id, "z": z})
        moments.count += 1
        delta = cost - moments.mean
        moments.mean += delta / moments.count
        moments.squares += delta * (cost - moments.mean)
        self.moments.set(moments)
