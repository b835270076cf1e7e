"""Callbacks of the pipelines in tests/transcripts/pipelines."""

from __future__ import annotations

from millwheel import Computation, ValueState


class Running(Computation):
    """The sum so far, and a bell 5 µs after each record."""

    total = ValueState(int, default=0)

    def process_record(self, ctx, record):
        self.total.set(self.total.get() + record.value["n"])
        ctx.produce("sums", {"k": ctx.key, "at": record.timestamp, "sum": self.total.get()})
        ctx.set_timer("bell", record.timestamp + 5)

    def process_timer(self, ctx, timer):
        ctx.produce("sums", {"k": ctx.key, "at": timer.at, "sum": self.total.get(), "bell": True})


class Median(Computation):
    """The middle value of a window."""

    def process_window(self, ctx, key, window, records):
        values = sorted(record.value["n"] for record in records)
        if values:
            ctx.produce(
                "medians", {"k": key, "start": window.start, "median": values[len(values) // 2]}
            )


def doubled(value):
    return {**value, "n": value["n"] * 2}
