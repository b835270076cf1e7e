"""A shard whose callbacks set and cancel timers as their records say."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel import Computation, ValueState
from millwheel.core.model.records import Domain
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.unit.engine.workers.bench import NOW, Dial, ShardBench, computation, pipeline

CLOCK, EVENT = Domain.PROCESSING, Domain.EVENT


class Timers(Computation):
    """Does what its records say, and tells what it was called for."""

    fired = ValueState(int, default=0)
    on_timer: dict[str, list[Any]] = {
        "chain": [("set", "next", 20)],
        "next": [("set", "last", 30)],
        "back": [("set", "past", 1)],
        "kills": [("cancel", "victim", CLOCK.value), ("cancel", "victim", EVENT.value)],
        "moves": [("set", "victim", NOW + 500, CLOCK.value)],
        "again": [("set", "again", 1, CLOCK.value)],
    }

    def process_record(self, ctx: Any, record: Any) -> None:
        for step in record.value:
            self.do(ctx, *step)
        ctx.produce("out", {"key": ctx.key, "record": record.timestamp, "behind": self.fired.get()})

    def process_timer(self, ctx: Any, timer: Any) -> None:
        self.fired.set(self.fired.get() + 1)
        ctx.produce(
            "out",
            {
                "key": ctx.key,
                "timer": timer.tag,
                "at": timer.at - NOW if timer.at > NOW else timer.at,
            },
        )
        for step in self.on_timer.get(timer.tag, ()):
            self.do(ctx, *step)

    def do(self, ctx: Any, what: str, tag: str = "", *of: Any) -> None:
        if what == "raise":
            raise ValueError("as asked")
        if what == "cancel":
            ctx.cancel_timer(tag, Domain(of[0]))
        else:
            ctx.set_timer(tag, of[0], *[Domain(domain) for domain in of[1:]])


class Bench(ShardBench):
    """``hits`` are one delivery: records of a key as (time, steps)."""

    def __init__(self, ordered: bool = False, most: int = 5_000) -> None:
        work = computation(callback="bench:It", ordered=ordered, max_attempts=2)
        super().__init__(Timers, Dial(), ShardLimits(timers=most), pipeline(work))
        self.number = 1

    def hits(self, *hits: tuple[int, Any], broken: bool = False) -> None:
        rows = [("k", steps, at) for at, steps in hits]
        rows += [("other", [("raise",)], rows[0][2])] if broken else []
        self.deliver(*rows, first=self.number)
        self.number += len(rows)

    def told(self) -> list[Any]:
        rows = [row for row in self.through() if row["key"] == "k"]
        return [row["timer"] if "timer" in row else (row["record"], row["behind"]) for row in rows]


both = pytest.mark.parametrize("broken", [False, True], ids=["fast", "beside a record that fails"])


def clock(tag: str, at: int) -> tuple[Any, ...]:
    return ("set", tag, NOW + at, CLOCK.value)
