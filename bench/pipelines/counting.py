"""Availability: how many records of a key there were."""

from __future__ import annotations

from typing import Any

from millwheel import Computation, Context, Record, ValueState


class Counting(Computation):
    """Says the number of each record among those of its key."""

    count = ValueState(int, default=int)

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        total = self.count.get() + 1
        self.count.set(total)
        # The names are those that the sink of part C notes.
        ctx.produce(
            "counts",
            {"group": record.value["key"], "total": total, "created": record.value["ts"] / 1000},
        )
