"""Windows of many keys in columns, which numbers that these cannot hold make go on in rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from millwheel.core.columns.state import columns_to_rows
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.engine.workers.operators.windows import columns, segment_table
from tests.sim.replacing import replaced
from tests.sim.workloads.base import SECOND, START_US, equal
from tests.sim.workloads.windows import FIELDS, Windows

_ROWS = 600
_APART_US = SECOND // 1_000
_DELICATE = 1e-13
"""Columns do not add it up as exactly as rows."""
_DELICATE_ROWS = 12
_MOST_KEYS = 1  # of a shard that may be in rows beside columns
_PART = 10  # groups that leave columns in one bundle


class Crowded(Windows):
    """Tumbling windows, each of a key of its own. All that columns hold leaves in parts: no commit
    is as large as a shard."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        self._own = Random(f"crowd {seed}")
        super().__init__(seed, size)
        self.fields = self.columns = {**FIELDS, "n": "float"}
        self.limits = replace(self.limits, bundle=1, timers=1, columns_from=1)

    @contextmanager
    def tight(self) -> Iterator[None]:
        with (
            replaced(columns_to_rows, "PART_RECORDS", _PART),
            replaced(columns, "MOST_KEYS", _MOST_KEYS),
            replaced(segment_table, "MOST_KEYS", _MOST_KEYS),
        ):
            yield

    def _partition(self, number: int) -> list[Any]:
        count = max(1, int(_ROWS * self.size)) if number == 0 else 1
        rows = [
            {"key": f"k{number}/{n}", "n": float(n), "p": number, "ts": START_US + n * _APART_US}
            for n in range(count)
        ]
        for _ in range(_DELICATE_ROWS):
            rows[self._own.randrange(count * 2 // 3, count)]["n"] = _DELICATE
        return rows

    def spec(self) -> PipelineSpec:
        whole = super().spec()
        mine = tuple(each for each in whole.computations if each.name == "tumbling")
        return replace(
            whole,
            computations=mine,
            sinks=tuple(s for s in whole.sinks if s.stream == "tumbling_out"),
        )

    def check(self) -> None:
        grouped = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in self.on_time()
        )
        equal("tumbling", self._found("tumbling_out"), self._counted(grouped))
