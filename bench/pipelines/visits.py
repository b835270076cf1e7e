"""Failover: the state of a key is a kilobyte that does not compress; a result says which process
made it, and when."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import msgspec

from millwheel import Computation, Context, Record, ValueState

KEYS = int(os.environ.get("BENCH_KEYS", "100000"))
STATE_BYTES = 1_000


class Visitor(msgspec.Struct, array_like=True):
    """The state of a key."""

    visits: int = 0
    trace: bytes = b""


def visit(index: int, partition: int) -> dict[str, Any]:
    """All keys, one after the other, over and over."""
    return {"index": index, "key": index % KEYS}


class Visitors(Computation):
    """Counts the visits of a key, and replaces its kilobyte."""

    visitor = ValueState(Visitor, default=Visitor)

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        visits = self.visitor.get().visits + 1
        self.visitor.set(Visitor(visits, random.randbytes(STATE_BYTES)))
        # The names are those that the sink of part C notes.
        ctx.produce(
            "visitors", {"group": record.value["key"], "total": os.getpid(), "created": time.time()}
        )
