"""The numbers in the store of a shard, read as a whole when the shard is opened.

For a million values that takes a tenth of a second and more. It needs nothing but the store, so it
is done where the store is opened, beside the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.number_runs import (
    ROW,
    Int64s,
    numbers_of_heads,
    parsed_run_key,
    partitions_of_heads,
    rows_from,
)
from millwheel.core.formats.store_layout import NUMBERS
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.engine.workers.dictionaries.table import NumberTable


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in the store: its key there, the bucket (µs) and its number in that, and its bytes."""

    store_key: bytes
    start: int
    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """All values in a table, the runs that they are stored in, and how far each partition has
    counted by these."""

    table: NumberTable
    runs: Sequence[StoredRun]
    counted: Int64s


def read_numbers(store: StateStore, partitions: int, timed: bool) -> StoredNumbers:
    """Read all runs. ``timed``: values have a time to live. Any thread, as long as no other uses
    the store."""
    table, counted, runs = NumberTable(timed), np.zeros(partitions, np.int64), []
    stored = list(store.scan(NUMBERS))
    if not timed:
        table.reserve(sum(len(run) for _, run in stored) // ROW.itemsize)
    for store_key, run in stored:
        start, number = parsed_run_key(store_key)
        runs.append(StoredRun(store_key, start, number, len(run)))
        rows = rows_from(run)
        heads = rows["head"]
        np.maximum.at(counted, partitions_of_heads(heads), numbers_of_heads(heads) + 1)
        if not timed:
            table.append(rows)
            continue
        row_numbers, _ = table.take(
            np.ascontiguousarray(rows["low"]), np.ascontiguousarray(rows["high"])
        )
        # runs come in the order of their buckets
        table.heads[row_numbers], table.seen[row_numbers] = heads, start
    if not timed:
        table.ready()
    return StoredNumbers(table, runs, counted)


class NumbersRead:
    """Reads the stores of those shards that belong to dictionaries."""

    def __init__(self, computations: Sequence[ComputationSpec]) -> None:
        self._specs = {
            each.name: each.work for each in computations if isinstance(each.work, DictionarySpec)
        }

    def read(self, node: str, store: StateStore) -> StoredNumbers | None:
        """The numbers in the store of a shard of this node; None if it is not a dictionary."""
        spec = self._specs.get(node)
        return (
            None
            if spec is None
            else read_numbers(store, spec.partitions, timed=spec.ttl_us is not None)
        )
