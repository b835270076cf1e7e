"""The sink at the end of a chain behind a source, which runs in the source's shards. The output of
reads is gathered, and becomes a batch of the sink in one commit with the positions behind them.

Nothing of a read is committed before its batch is prepared: no position, no dead letter, no
counter. After a crash before that commit the partitions are read again from the same positions, and
prepared batches are swept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.formats.store_layout import CHAINED_SINK, COMMITTABLE
from millwheel.core.model.failures import CHAINED_IN
from millwheel.core.model.times import MAX_TIME, held_at
from millwheel.engine.workers.bundle.bundle import RECORD, Bundle, Hold
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.chains import (
    arrived,
    part_of,
    taken,
)
from millwheel.engine.workers.sinks.sink import SinkOperator

_MOST_BYTES = 1 << 26  # of reads for a batch: some reads of files in columns


@dataclass(slots=True)
class _Gathered:
    """The output of reads of ``size`` bytes since ``since_us``: the records for the sink, and the
    rest, with the functions that make each read a part of the commit. ``earliest``: the lowest
    timestamp in all of it."""

    since_us: int
    arrivals: list[Arrival] = field(default_factory=list)
    reads: list[tuple[Bundle, Callable[[Bundle], None]]] = field(default_factory=list)
    records: int = 0
    size: int = 0
    earliest: int = MAX_TIME


class ChainEnd:
    """``operator`` writes the batches of ``stream`` for a shard of the source. Records are taken
    unless the pipeline has other chains than that of an owner whose batches it publishes:
    ``takes`` is False."""

    def __init__(self, stream: str, operator: SinkOperator, takes: bool) -> None:
        self.takes = takes
        self.node = f"sink.{stream}"
        self.operator = operator
        self._stream = stream
        self._rests = False
        self._gathered: _Gathered | None = None
        self._asked: tuple[_Gathered, Bundle] | None = None
        """The output that is becoming a batch, which another thread may prepare."""

    @property
    def full(self) -> bool:
        """Whether enough is gathered that nothing more is to be read."""
        gathered = self._gathered
        return gathered is not None and (
            gathered.records >= self.operator.cut_records or gathered.size >= _MOST_BYTES
        )

    def take(self, made: Bundle, size: int, commit: Callable[[Bundle], None]) -> None:
        """Gather the output of a read of ``size`` bytes. ``commit`` makes the read a part of a
        bundle."""
        if self._gathered is None:
            self._gathered = _Gathered(made.now_us)
        gathered = self._gathered
        batches = [_born(batch, made.now_us) for batch in taken(self._stream, "", made)]
        gathered.arrivals += arrived(batches)
        gathered.records += sum(map(len, batches))
        gathered.size += size
        others = [min(each.timestamps) for each in made.outputs.streams.values() if each.timestamps]
        earliest = [batch.earliest for batch in (*batches, *made.outputs.columns)]
        gathered.earliest = min([gathered.earliest, *others, *earliest])
        gathered.reads.append((made, commit))

    def run(self, bundle: Bundle, urgent: bool) -> None:
        """Go on: a gathered batch that is prepared becomes a part of the bundle. ``urgent``: it
        waits for no more."""
        self._begin(bundle, urgent)
        # A batch is committed together with the positions behind its reads: see mistakes
        # chained_reads_without_their_batch and chained_reads_without_their_position.
        while self._asked is not None and not self.operator.ask(self._asked[1], bundle.now_us):
            gathered, part = self._asked
            self._asked = None
            for made, commit in gathered.reads:
                bundle.add(made)
                commit(bundle)
            bundle.overlay.put(CHAINED_SINK, self._stream.encode())
            part = replace(part, number=bundle.number, now_us=bundle.now_us)
            self._run(part, bundle)
            self._begin(bundle, urgent)
        if self.operator.wakes_at(bundle.now_us) <= bundle.now_us:
            self._run(part_of(bundle, []), bundle)

    def _begin(self, bundle: Bundle, urgent: bool) -> None:
        """Let the gathered output become a batch, if it is time."""
        gathered = self._gathered
        if self._asked is None and gathered is not None and self._due_at(urgent) <= bundle.now_us:
            self._asked = gathered, part_of(bundle, gathered.arrivals)
            self._gathered = None

    def _run(self, part: Bundle, bundle: Bundle) -> None:
        part.overlay = bundle.overlay
        part.try_records()
        part.count(CHAINED_IN, part.tried[RECORD])
        self.operator.run(part)
        part.take_counts()
        bundle.positions_only = False
        bundle.add(part, self.node, self._stream)

    def _due_at(self, urgent: bool) -> int:
        gathered = self._gathered
        # two batches that are on their way are enough
        if gathered is None or not self.operator.intake(1, 0, MAX_TIME):
            return MAX_TIME
        soon = urgent or self.full
        return 0 if soon else gathered.since_us + self.operator.flush_us

    def wakes_at(self, now_us: int, urgent: bool) -> int:
        """When it needs a bundle (wall clock, µs; MAX_TIME: once something happens)."""
        at = self._due_at(urgent) if self._asked is None else self.operator.asks_at()
        return min(at, self.operator.wakes_at(now_us))

    def rest(self, active: bool, now_us: int) -> None:
        """See :class:`millwheel.engine.workers.bundle.operator.Operator`."""
        self._rests = active
        self.operator.rest(active, now_us)

    def unfinished(self) -> int:
        """Whether batches are not visible; at rest, how many are not, or are not forgotten."""
        # Otherwise a run that ends once it has caught up would wait for a commit that never comes.
        if self._rests:
            return self.operator.unfinished()
        return int(self.operator.hold(0) != Hold())

    def hold(self, now_us: int) -> Hold:
        """The hold of output that is not visible yet."""
        hold = self.operator.hold(now_us)
        waiting = [self._gathered, None if self._asked is None else self._asked[0]]
        earliest = min([each.earliest for each in waiting if each is not None], default=MAX_TIME)
        if earliest >= hold.at:
            return hold
        return Hold(held_at(earliest), f"records that wait for the next batch of {self.node}")


def _born(batch: AnyBatch, now_us: int) -> AnyBatch:
    """The batch, with the time since which its records are on their way."""
    if isinstance(batch, ColumnBatch):
        return replace(batch, born_us=batch.born_us or now_us)
    batch.born_us = batch.born_us or now_us
    return batch


def former_sink(store: StateStore) -> str:
    """The stream whose sink has batches in the store of a source's shard; "" for none."""
    stream = store.get(CHAINED_SINK)
    has = stream is not None and next(iter(store.scan(COMMITTABLE)), None) is not None
    return bytes(stream).decode() if stream is not None and has else ""
