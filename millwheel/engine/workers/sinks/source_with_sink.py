"""Reads the partitions of a source whose chain ends in a sink, which runs in its shards.

A read is outstanding until the batch of the sink with its output is committed, and its position
with that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.metrics import Figure
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.operators.chains import part_of
from millwheel.engine.workers.sinks.chain_end import ChainEnd
from millwheel.engine.workers.sources.partition import Outstanding, Part, as_with_results
from millwheel.engine.workers.sources.sorting import Sorted
from millwheel.engine.workers.sources.source import SourceOperator, pass_on
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.errors import invariant


class SourceWithSink(SourceOperator):
    """The operator of a ``source.*`` shard with the sink ``end``."""

    def __init__(self, parts: SourceParts, store: StateStore, now_us: int, end: ChainEnd) -> None:
        self._sink, self.news = end, end.operator.news
        super().__init__(parts, store, now_us)

    def wakes_at(self, now_us: int) -> int:
        return min(super().wakes_at(now_us), self._sink.wakes_at(now_us, self._hurries))

    def run(self, bundle: Bundle) -> None:
        super().run(bundle)
        self._sink.run(bundle, self._hurries)

    def durable(self, number: int, now_us: int) -> None:
        super().durable(number, now_us)
        self._sink.operator.durable(number, now_us)

    def hold(self, now_us: int) -> Hold:
        """The hold of the source, or of output that is not visible yet."""
        hold, own = super().hold(now_us), self._sink.hold(now_us)
        return own if own.at < hold.at else hold

    def rest(self, active: bool, now_us: int) -> None:
        super().rest(active, now_us)
        self._sink.rest(active, now_us)

    def unfinished(self) -> int:
        return super().unfinished() + self._sink.unfinished()

    def sources_ended(self) -> None:
        self._sink.operator.sources_ended()

    def figures(self) -> Sequence[Figure]:
        return self._sink.operator.figures()

    @property
    def figures_of(self) -> str:
        return self._sink.node

    def close(self) -> None:
        super().close()
        self._sink.operator.close()

    def _readable(self) -> list[Part]:
        return [] if self._sink.full else super()._readable()

    def _send(self, part: Part, outcome: Sorted, bundle: Bundle) -> None:
        if not part.with_results or not self._sink.takes:
            super()._send(part, outcome, bundle)
            return
        made = part_of(bundle, [])
        pass_on(self._parts, part, outcome, made)
        read = Outstanding([], as_with_results(part.after()), outcome.counters, with_results=True)
        part.outstanding.append(read)
        size = sum(_size(batch) for _, batch in outcome.batches)
        self._sink.take(made, size, partial(self._commit_read, part, read))

    def _commit_read(self, part: Part, read: Outstanding, bundle: Bundle) -> None:
        """Make a read part of the bundle that commits the batch with its output."""
        invariant(part.outstanding.popleft() is read, f"{part.channel}: reads change their order")
        for name, by in read.counters.items():
            bundle.count(name, by)
        self._write(part, read.after, bundle, 1)

    @property
    def _hurries(self) -> bool:
        """Whether the gathered output for the sink waits for no more."""
        if self.lone or self._end.reads_nothing:
            return True
        all_open = self._parts.source.bounded and not self.partitions.unopened
        return all_open and all(part.read_all for part in self.partitions.awake.values())


def _size(batch: AnyBatch) -> int:
    """About the memory of a batch that was read (bytes)."""
    return int(batch.frame.estimated_size()) if isinstance(batch, ColumnBatch) else batch.size
