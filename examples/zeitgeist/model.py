"""The zeitgeist example's model: what an hour usually brings, per series, with daily rhythm and
slow forgetting."""

from __future__ import annotations

import math

import msgspec

from millwheel import Computation, Context, Record, ValueState

HOUR_US = 3_600_000_000
FORGET = 1 / 100


class Model(msgspec.Struct):
    """Mean and variance of the logarithm of an hour's mentions, overall and by hour of the day."""

    hours: int = 0
    mean: float = 0.0
    variance: float = 1.0
    by_hour: list[float] = msgspec.field(default_factory=lambda: [0.0] * 24)


class Watch(Computation):
    """Alerts when an hour lies ``threshold`` standard deviations above (spike) or below (dip) what
    is usual."""

    model = ValueState(Model, default=Model)

    def __init__(self, threshold: float = 3.5, warm_up: int = 48) -> None:
        self.threshold = threshold
        self.warm_up = warm_up

    def process_record(self, ctx: Context, record: Record) -> None:
        model, start = self.model.get(), record.value["window_start"]
        hour = start // HOUR_US % 24
        seen = math.log1p(record.value["mentions"])
        surprise = seen - model.mean - model.by_hour[hour]
        score = surprise / math.sqrt(model.variance)
        if model.hours >= self.warm_up and abs(score) >= self.threshold:
            kind = "spike" if score > 0 else "dip"
            alert = {
                "series": ctx.key,
                "window_start": start,
                "kind": kind,
                "score": round(score, 2),
            }
            ctx.produce("alerts", {**alert, "mentions": record.value["mentions"]})
        self._learn(model, hour, surprise)
        self.model.set(model)

    def _learn(self, model: Model, hour: int, surprise: float) -> None:
        model.hours += 1
        rate = max(FORGET, 1 / model.hours)
        model.mean += rate * surprise
        model.by_hour[hour] += rate * 2 * (surprise - rate * surprise)
        capped = (
            min(surprise * surprise, 9 * model.variance)
            if model.hours > self.warm_up
            else surprise * surprise
        )
        model.variance += rate * (capped - model.variance)
