"""The outside world of a simulated pipeline: sources of made-up rows, and sinks that remember what
was published."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    LostError,
    Refused,
    Sink,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.connect.sources.base import Chunk, FrameChunk, Partition, Reader, Reject, Source
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.errors import FencedError, UnavailableError
from tests.sim.kernel import Failure


class MemorySource(Source):
    """Partitions of rows; a row that is None is not a record. It can be read again from any
    position.
    ``released`` says how many of so many rows have been written by now. Positions are ``stride``
    apart. With ``fields`` (their types) it is read in columns."""

    bounded = True
    poll_us = 20_000

    def __init__(
        self,
        rows: dict[str, list[Any]],
        released: Callable[[int], int],
        stride: int = 1,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.rows = rows
        self._released = released
        self._stride = stride
        self._fields = fields or {}

    def partitions(self) -> Sequence[Partition]:
        return [Partition(name) for name in sorted(self.rows)]

    def open(self, partition: Partition) -> MemoryReader:
        return MemoryReader(self.rows[partition.name], self._released, self._stride, self._fields)


_FRAME_ROWS = 40
_TYPES = {"int": pl.Int64, "float": pl.Float64, "str": pl.String, "bool": pl.Boolean}


class MemoryReader(Reader):
    def __init__(
        self,
        rows: list[Any],
        released: Callable[[int], int],
        stride: int,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self._rows = rows
        self._released = released
        self._stride = stride
        self._fields = fields or {}

    def read(self, position: int, max_records: int) -> Chunk:
        start, stride = position // self._stride, self._stride
        released = self._released(len(self._rows))
        rows = self._rows[start : min(released, start + max_records)]
        good = [((start + i + 1) * stride, row) for i, row in enumerate(rows) if row is not None]
        bad = [
            Reject((start + i + 1) * stride, "?", "no record")
            for i, row in enumerate(rows)
            if row is None
        ]
        after = start + len(rows)
        return Chunk(
            [p for p, _ in good],
            [dict(r) for _, r in good],
            after * stride,
            bad,
            after >= len(self._rows),
        )

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        chunk = self.read(position, 1 + position % _FRAME_ROWS)
        if not self._fields or chunk.rejects:
            return None
        types = {name: _TYPES[kind] for name, kind in self._fields.items()}
        frame = pl.DataFrame(
            [[row[name] for name in types] for row in chunk.values], types, orient="row"
        )
        return FrameChunk(
            np.array(chunk.positions, np.int64), frame, chunk.next_position, [], chunk.finished
        )


class MemorySinks:
    """What is visible in each sink. Prepared batches are invisible until they are published, by
    name.

    ``look`` is called with every row at the moment it becomes visible.
    """

    def __init__(self, look: Callable[[str, Any], None]) -> None:
        self.visible: dict[str, dict[str, list[Any]]] = defaultdict(dict)
        self.prepared: dict[bytes, tuple[str, str, list[Any]]] = {}
        self.target = TransactionalTarget(self.visible)
        self.look = look
        self.aside = False
        """Whether plain sinks prepare and publish in other threads, as files do, and publish in any
        order."""

    def build(self, spec: SinkSpec, folder: str) -> MemorySink:
        kinds = {"latest": LatestSink, "at_once": AtOnceSink, "transactional": TransactionalSink}
        return kinds.get(spec.kind, MemorySink)(self, spec.stream)

    def rows(self, stream: str) -> list[Any]:
        return [row for rows in self.visible[stream].values() for row in rows]


class MemorySink(Sink):
    flush_us = 20_000
    cut_records = 50

    def __init__(self, world: MemorySinks, stream: str) -> None:
        self._world = world
        self._stream = stream

    def check(self, identity: str) -> None:
        pass

    def open(self, shard: str, token: int) -> MemoryWriter:
        return MemoryWriter(self._world, self._stream, shard)


class TransactionalTarget:
    """Another system with transactions: rows, the number of their batch and the lease token of the
    writer are taken together, or not at all. ``rng`` decides when it is away, and which of its
    answers are lost; ``refuses`` which rows it never takes. ``names``: it tells which rows those
    are; otherwise a batch is halved until such a row is alone."""

    def __init__(self, visible: dict[str, dict[str, list[Any]]]) -> None:
        self.visible = visible
        self.rng = random.Random(0)
        self.trouble = 0.0
        self.refuses: Callable[[Any], bool] = lambda row: False
        self.names = True
        self._last: dict[str, int] = defaultdict(lambda: -1)
        self._token: dict[str, int] = defaultdict(int)

    def write(self, stream: str, shard: str, token: int, number: int, rows: list[Any]) -> None:
        """One transaction."""
        if self.rng.random() < self.trouble:
            raise UnavailableError("the target is away")
        if token < self._token[shard]:
            raise FencedError(f"{shard} has a newer publisher")
        self._token[shard] = token
        self._take(stream, shard, number, rows)
        if self.rng.random() < self.trouble:
            raise UnavailableError("the answer of the target is lost")

    def _take(self, stream: str, shard: str, number: int, rows: list[Any]) -> None:
        name, last = f"{shard}/{number}", self._last[shard]
        if number <= last:
            if self.visible[stream][name] != rows:
                raise Failure(
                    f"a batch is published once: {name} of {stream} was published twice with"
                    " different rows"
                )
            return
        if number != last + 1:
            raise Failure(
                f"batches are published in order: {name} of {stream} came after batch {last}"
            )
        self.visible[stream][name] = rows
        self._last[shard] = number


class TransactionalSink(MemorySink):
    """As the sinks of Kafka and of databases: the journal holds the rows, and batches are published
    in order, aside."""

    def open(self, shard: str, token: int) -> TransactionalWriter:
        return TransactionalWriter(self._world.target, self._stream, shard, token)


class TransactionalWriter(Writer):
    publishes_aside = True
    publishes_in_order = True

    def __init__(self, target: TransactionalTarget, stream: str, shard: str, token: int) -> None:
        self._target, self._stream, self._shard, self._token = target, stream, shard, token
        self.lane = shard

    def prepare(self, batch: SinkBatch) -> bytes:
        records = [(record.key, record.value, record.timestamp) for record in batch.records]
        return msgspec.json.encode([batch.number, records])

    def publish(self, committable: bytes) -> None:
        number, records = msgspec.json.decode(committable)
        good = [record for record in records if not self._target.refuses(record[1])]
        if len(good) < len(records) and len(records) > 1 and not self._target.names:
            middle = len(records) // 2
            parts = [[number, records[:middle]], [number + 1, records[middle:]]]
            raise BatchSplitError("one of these", [msgspec.json.encode(part) for part in parts])
        if len(good) < len(records):
            bad = [
                Refused(SinkRecord(*record), "not this one")
                for record in records
                if record not in good
            ]
            raise BatchRefusedError(bad, msgspec.json.encode([number, good]))
        self._target.write(
            self._stream, self._shard, self._token, number, [value for _, value, _ in records]
        )

    def renumbered(self, committable: bytes, number: int) -> bytes:
        return msgspec.json.encode([number, msgspec.json.decode(committable)[1]])

    def sweep(self, committables: list[bytes]) -> None:
        pass


class AtOnceSink(MemorySink):
    """Shows rows before they are committed; what an attempt has shown stays beside what the next
    one shows."""

    shows_at_once = True
    flush_us = 0

    def open(self, shard: str, token: int) -> AtOnceWriter:
        return AtOnceWriter(self._world, self._stream, shard)


class LatestSink(MemorySink):
    """Shows the current rows: one list of rows per shard, replaced as a whole."""

    keeps_latest = True

    def open(self, shard: str, token: int) -> LatestWriter:
        return LatestWriter(self._world, self._stream, shard, token)


class LatestWriter(Writer):
    """What is prepared is used up when it is published, as by a rename."""

    def __init__(self, world: MemorySinks, stream: str, shard: str, token: int) -> None:
        self._world = world
        self._stream = stream
        self._shard = shard
        self._token = token
        self._shown = b""

    def prepare(self, batch: SinkBatch) -> bytes:
        committable = f"{self._shard}/{batch.attempt}".encode()
        self._world.prepared[committable] = (
            self._stream,
            self._shard,
            [record.value for record in batch.records],
        )
        return committable

    def publish(self, committable: bytes) -> None:
        if committable == self._shown:
            return
        prepared = self._world.prepared.pop(committable, None)
        if prepared is None:
            raise LostError(committable.decode())
        self._shown = committable
        self._world.visible[self._stream][self._shard] = prepared[2]

    def sweep(self, committables: list[bytes]) -> None:
        for committable in list(self._world.prepared):
            shard, _, attempt = committable.decode().rpartition("/")
            if shard == self._shard and int(attempt.partition("-")[0]) < self._token:
                del self._world.prepared[committable]


class MemoryWriter(Writer):
    def __init__(self, world: MemorySinks, stream: str, shard: str) -> None:
        self._world = world
        self._stream = stream
        self._shard = shard
        self._swept = False
        self.publishes_aside = world.aside
        self.prepares_aside = int(world.aside)
        self.lane = shard

    def prepare(self, batch: SinkBatch) -> bytes:
        committable = f"{self._shard}/{batch.number}/{batch.attempt}".encode()
        rows = [record.value for record in batch.records]
        self._world.prepared[committable] = (self._stream, f"{self._shard}/{batch.number}", rows)
        return committable

    def publish(self, committable: bytes) -> None:
        stream, name, rows = self._world.prepared[committable]
        visible = self._world.visible[stream]
        if name in visible:
            if visible[name] != rows:
                raise Failure(
                    f"a cut is published once: {name} of {stream} was published twice with"
                    " different rows"
                )
            return
        visible[name] = rows
        for row in rows:
            self._world.look(stream, row)

    def sweep(self, committables: list[bytes]) -> None:
        if self._swept:
            raise Failure(
                f"what is left behind is swept once: {self._shard} of {self._stream} was swept"
                " twice"
            )
        self._swept = True
        for name in (committable.decode().rpartition("/")[0] for committable in committables):
            if name not in self._world.visible[self._stream]:
                raise Failure(
                    f"nothing is swept before it is published: {name} of {self._stream} was not"
                    " visible"
                )


class AtOnceWriter(MemoryWriter):
    """The rows are their own committable, as with standard output."""

    def prepare(self, batch: SinkBatch) -> bytes:
        return msgspec.json.encode(
            [f"{self._shard}/{batch.attempt}", [record.value for record in batch.records]]
        )

    def publish(self, committable: bytes) -> None:
        name, rows = msgspec.json.decode(committable)
        self._world.visible[self._stream][name] = rows

    def sweep(self, committables: list[bytes]) -> None:
        pass
