"""Aggregates that take about 100 µs a record, as one that parses or scores does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from millwheel import Aggregator

_TURNS = 250
_TELLS = 100  # records between two of its notes


class Costly(Aggregator[int]):
    """The sum of what is left of a chain of hashes of each value."""

    ordered = False

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: int, timestamp: int) -> int:
        found = value.to_bytes(8, "big")
        for _ in range(_TURNS):
            found = hashlib.sha256(found).digest()
        return acc + found[0]

    def merge(self, acc: int, other: int) -> int:
        return acc + other


class CountingCost(Costly):
    """``Costly``; the file named after the process, in the folder of ``BENCH_COUNTS``, has how many records it
    added."""

    def __init__(self) -> None:
        self._added = 0
        self._told = Path(os.environ["BENCH_COUNTS"]) / str(os.getpid()) if "BENCH_COUNTS" in os.environ else None

    def add(self, acc: int, value: int, timestamp: int) -> int:
        self._added += 1
        if self._added % _TELLS == 0 and self._told is not None:
            self._told.write_text(str(self._added))
        return super().add(acc, value, timestamp)
