"""The weblog example's own code: a spike detector that keeps a small model of every path in its
state."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel import Computation, Context, Record, ValueState


class Usual(msgspec.Struct):
    """What is usual for a path: how many minutes were seen, and their mean hits, recent ones
    counting more."""

    minutes: int = 0
    mean: float = 0.0


class SpikeDetector(Computation):
    """Alerts when a minute has ``factor`` times the hits that are usual for its path."""

    usual = ValueState(Usual, default=Usual)

    def __init__(self, factor: float = 4, warm_up: int = 5) -> None:
        self.factor = factor
        self.warm_up = warm_up

    def process_record(self, ctx: Context, record: Record) -> None:
        usual, minute = self.usual.get(), record.value
        if usual.minutes >= self.warm_up and minute["hits"] >= self.factor * usual.mean:
            alert = {
                "path": ctx.key,
                "window_start": minute["window_start"],
                "hits": minute["hits"],
            }
            ctx.produce("alerts", {**alert, "usual": round(usual.mean, 2)})
        usual.minutes += 1
        usual.mean += (minute["hits"] - usual.mean) / min(usual.minutes, 20)
        self.usual.set(usual)


def whole_site(hit: dict[str, Any]) -> str:
    """One key for all hits: the audience is counted for the site as a whole."""
    return "site"
