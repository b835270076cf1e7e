"""A gauge that never gives one reading twice, like a clock or a price, and notes of it."""

from __future__ import annotations

import itertools

from millwheel import Computation, Context, Record, ValueState

_readings = itertools.count()


class Gauge(Computation):
    """Reads the gauge once for each question, keeps the reading, and sends it."""

    told = ValueState(int)

    def process_record(self, ctx: Context, record: Record) -> None:
        reading = next(_readings)
        self.told.set(reading)
        ctx.produce("readings", {"name": ctx.key, "reading": reading})


class Notes(Computation):
    """Keeps what it heard."""

    heard = ValueState(int)

    def process_record(self, ctx: Context, record: Record) -> None:
        self.heard.set(record.value["reading"])
