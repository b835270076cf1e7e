"""The instance that gets each production, where a consumer divides its keys by tables: chosen once,
and stored with the production."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.grouping.current import CurrentTables
from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured, hashed
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.errors import InvariantError

Numbers = Sequence[int] | npt.NDArray[np.int64]
Measure = Callable[[], Mapping[str, Measured]]


_MOST_INSTANCES = 256  # Fixed: as many as a byte has values


class Instances(Protocol):
    """The instances of the records of one batch."""

    def of(self, node: str, instances: int, keys: Sequence[Key], seqs: Numbers) -> Sequence[int]:
        """The instances of the records that a node gets, in order; ``seqs`` are empty if they have
        no numbers."""


class AnyInstances:
    """Instances by the key, for records that have not been sent yet, and are sent once."""

    def of(self, node: str, instances: int, keys: Sequence[Key], seqs: Numbers) -> Sequence[int]:
        return [hashed(key, 0, instances) for key in keys]


@dataclass(frozen=True, slots=True)
class ChosenInstances:
    """Instances chosen by tables, with a note of each choice: a byte for each record of a batch,
    which begins at number ``first``."""

    tables: CurrentTables
    records: int
    first: int
    noted: dict[str, bytes] = field(default_factory=dict)

    def of(self, node: str, instances: int, keys: Sequence[Key], seqs: Numbers) -> Sequence[int]:
        chosen = self.tables.choose(node, keys)
        rows = np.zeros(self.records, np.uint8)
        # A byte each: a larger number would be noted as another instance.
        if len(chosen) != len(keys) or instances > _MOST_INSTANCES:
            raise InvariantError(f"{node}: {len(chosen)} of {instances} instances are chosen")
        rows[_rows(seqs, self.first, len(keys))] = chosen
        self.noted[node] = rows.tobytes()
        return chosen


@dataclass(frozen=True, slots=True)
class StoredInstances:
    """The noted instances of a batch with these numbers: a consumer recognizes a production only
    where it was sent before."""

    seqs: Numbers
    noted: Mapping[str, bytes]

    def of(self, node: str, instances: int, keys: Sequence[Key], seqs: Numbers) -> Sequence[int]:
        if node not in self.noted:
            return AnyInstances().of(node, instances, keys, seqs)
        first = int(self.seqs[0]) if len(self.seqs) else 0
        rows = np.frombuffer(self.noted[node], np.uint8)
        at = _rows(seqs, first, len(keys))
        # From the end of the notes, a negative row would read the instance of another record.
        if len(at) and not 0 <= int(at[0]) <= int(at[-1]) < len(rows):
            raise InvariantError(f"{node}: the instances of {len(rows)} records are noted")
        chosen: list[int] = rows[at].tolist()
        return chosen


def _rows(seqs: Numbers, first: int, count: int) -> npt.NDArray[np.int64]:
    return np.asarray(seqs, np.int64) - first if len(seqs) else np.arange(count)


@dataclass(slots=True)
class ProductionInstances:
    """The division of the keys of one shard's productions: tables by stream. ``rules`` gives those
    of the consumers of a stream; ``measures`` makes the measure of a stream's instances, if any
    consumer goes by it."""

    rules: Callable[[str], Mapping[str, Rule]]
    measures: Callable[[Mapping[str, Rule]], Measure] = lambda rules: dict
    _by_stream: dict[str, tuple[CurrentTables, Measure] | None] = field(default_factory=dict)

    def choosing(
        self, stream: str, records: int, first: int, now_us: int
    ) -> ChosenInstances | None:
        """The choice for a batch of ``records`` records; None where no consumer divides its keys by
        tables."""
        entry = (
            self._by_stream[stream] if stream in self._by_stream else self._begin(stream, now_us)
        )
        if entry is None:
            return None
        tables, measured = entry
        tables.turn(measured, now_us)
        return ChosenInstances(tables, records, first)

    def tables(self) -> list[CurrentTables]:
        """The tables of all streams."""
        return [entry[0] for entry in self._by_stream.values() if entry is not None]

    def _begin(self, stream: str, now_us: int) -> tuple[CurrentTables, Measure] | None:
        rules = self.rules(stream)
        entry = self._by_stream[stream] = (
            (CurrentTables(rules, now_us), self.measures(rules)) if rules else None
        )
        return entry


class InstanceCounts:
    """The counts of one shard since its owner began."""

    def __init__(self) -> None:
        self.records: Counter[int] = Counter()

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Count the records of a bundle."""
        for arrival in arrivals:
            batch = arrival.batch
            if isinstance(batch, ColumnBatch) and isinstance(batch.keys.dtype, pl.Struct):
                instances = batch.keys.struct.unnest().get_columns()[-1].to_numpy()
                self.records.update(dict(enumerate(np.bincount(instances).tolist())))
            else:
                self.records.update([key[-1] for key in batch.rows().keys])

    def found(self) -> dict[int, int]:
        """The number of records by instance, without those that got none."""
        return {instance: count for instance, count in sorted(self.records.items()) if count}
