"""Part C: a count per key, then a sum per group of keys. Every record gives one result that carries
its creation."""

from __future__ import annotations

import os
import time
from typing import Any

from millwheel import Computation, Context, Record, ValueState

KEYS, GROUPS = 1_000, 50
_RATE = float(os.environ.get("BENCH_RATE", "5000"))
_began = float("inf")


def tick(index: int, partition: int) -> dict[str, Any]:
    """Record ``index``, created when the schedule says, not when the generator woke up for it.

    The generator makes record i at (i + 1) / rate after it began, or a little later: the earliest
    beginning that is consistent with all calls so far is the beginning, within the first seconds,
    which are left out of the figures.
    """
    global _began
    _began = min(_began, time.time() - (index + 1) / _RATE)
    return {"index": index, "key": index % KEYS, "created": _began + (index + 1) / _RATE}


class Count(Computation):
    """Stage 1: how many records of a key."""

    count = ValueState(int, default=int)

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        self.count.set(self.count.get() + 1)
        tick = record.value
        ctx.produce(
            "counts", {"group": tick["key"] % GROUPS, "count": 1, "created": tick["created"]}
        )


class Sum(Computation):
    """Stage 2: the sum of a group."""

    total = ValueState(int, default=int)

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        total = self.total.get() + record.value["count"]
        self.total.set(total)
        ctx.produce(
            "sums",
            {"group": record.value["group"], "total": total, "created": record.value["created"]},
        )
