"""Aggregates that take about 100 µs a record, as one that parses or scores does."""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random

from millwheel import Aggregator

_TURNS = 250
_TELLS = 100  # records between two of its notes
_SLEEP_US = 2_000
_KEYS, _BLOCK = 10_000, 1_000


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
    """``Costly``; or, with a number of µs as ``BENCH_WAITS``, the sum of the values, after so long
    a wait for each. In the folder of ``BENCH_COUNTS`` the file named after the process has how many
    records it added, and the one with ``.lags`` behind that name (timestamp, added at) of each, in
    µs."""

    def __init__(self) -> None:
        self._added = 0
        self._waits_us = int(os.environ.get("BENCH_WAITS", "0"))
        self._owed_us = 0
        self._told = (
            Path(os.environ["BENCH_COUNTS"]) / str(os.getpid())
            if "BENCH_COUNTS" in os.environ
            else None
        )
        self._lags = array("q")

    def add(self, acc: int, value: int, timestamp: int) -> int:
        self._added += 1
        found = super().add(acc, value, timestamp) if not self._waits_us else acc + value
        self._wait()
        self._lags.extend((timestamp, time.time_ns() // 1000))
        if self._added % _TELLS == 0 and self._told is not None:
            self._told.write_text(str(self._added))
            with self._told.with_suffix(".lags").open("ab") as file:
                self._lags.tofile(file)
            self._lags = array("q")
        return found

    def _wait(self) -> None:
        # Some records at a time: a process wakes up later than it should, by most of what a record
        # takes.
        self._owed_us += self._waits_us
        if self._owed_us >= _SLEEP_US:
            time.sleep(self._owed_us / 1e6)
            self._owed_us = 0


def drawn(index: int, partition: int) -> dict[str, int]:
    """A record of a generator with as many records a second in this partition as ``BENCH_EACH``
    says; keys by Zipf's law with the exponent ``BENCH_ZIPF``."""
    block, at = divmod(index, _BLOCK)
    keys, costs = _block(block, partition, float(os.environ["BENCH_ZIPF"]))
    return {"k": keys[at], "cost": costs[at], "ts": index * 1000 // int(os.environ["BENCH_EACH"])}


@cache
def _ends(exponent: float) -> list[float]:
    return list(accumulate((rank + 1) ** -exponent for rank in range(_KEYS)))


@lru_cache(maxsize=64)
def _block(block: int, partition: int, exponent: float) -> tuple[list[int], list[int]]:
    rng = Random(f"{partition} {block}")
    return rng.choices(range(_KEYS), cum_weights=_ends(exponent), k=_BLOCK), rng.choices(
        range(1000), k=_BLOCK
    )
