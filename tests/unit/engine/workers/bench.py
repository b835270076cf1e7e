"""One shard of a computation on a bench: a store, a journal that is a list, and what was sent and
acked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.api import Computation, ValueState
from millwheel.core.formats.codec import (
    Commit,
    decode_batch,
    decode_commit,
    encode_batch,
    encode_value,
)
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.engine.workers.delivery.inbox import Arrival, DeliveryOutcome
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.shard import Shard
from tests.computations import computation_spec
from tests.fakes.plain_storage import SimStore

NOW = 1_700_000_000_000_000
BY_KEY = KeySpec(KeyKind.FIELD, ("key",))


class Counting(Computation):
    """Numbers the records of each key."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.produce("out", {"key": ctx.key, "number": self.seen.get(), "value": record.value})


class Silent(Computation):
    """Counts the records of each key and produces nothing."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)


class FixedClock:
    """A clock that shows what it was told."""

    def __init__(self, now_us: int = NOW) -> None:
        self.now = now_us

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class Dial:
    """The guarantees of the computation on the bench, and how often it tries."""

    delivery: Delivery = Delivery.EXACTLY_ONCE
    productions: Productions = Productions.STRONG
    max_attempts: int = 3


def computation(name: str = "work", **more: Any) -> ComputationSpec:
    """A computation that reads ``events`` by key and writes ``out``."""
    return computation_spec(name, (InputSpec("events", BY_KEY),), ("out",), **more)


def pipeline(*computations: ComputationSpec, stream: StreamSpec | None = None) -> PipelineSpec:
    """events → the computations → sinks for ``out`` and for dead letters."""
    events = stream or StreamSpec("events", SourceSpec("memory"), timestamp="ts", id="id")
    sinks = (SinkSpec("out", "memory"), SinkSpec(DEAD_LETTERS, "memory"))
    return PipelineSpec("bench", (events,), computations, sinks, "/nowhere")


def single(node: str, owner: str = "w0", token: int = 1) -> RangeTable:
    """A table with one shard for everything."""
    return RangeTable(node, (ShardEntry(f"{node}-0", tile(1)[0], owner, token),), 0)


class ShardBench:
    """``run`` lets the shard work, ``settle`` makes everything durable, ``crash`` forgets what was
    not."""

    def __init__(
        self,
        kind: Callable[..., Computation],
        dial: Dial = Dial(),
        limits: ShardLimits = ShardLimits(),
        spec: PipelineSpec | None = None,
    ) -> None:
        work = computation(
            callback="bench:It",
            delivery=dial.delivery,
            productions=dial.productions,
            max_attempts=dial.max_attempts,
        )
        self.clock = FixedClock()
        self.assembly = Assembly(
            spec or pipeline(work),
            "/nowhere",
            self.clock,
            Factories(lambda *_: None, lambda *_: None, lambda name, folder: kind),  # type: ignore[arg-type,return-value]
            limits,
        )
        self.router = TableRouter()
        for node in self.assembly.graph.nodes:
            self.router.update(single(node))
        self.journal: list[bytes] = []
        self.token = 0
        self.index: dict[str, int] = {}
        self.crash()

    # --- lives ------------------------------------------------------------------------------------

    def crash(self) -> None:
        """A new owner recovers what the journal holds."""
        self.token += 1
        store = SimStore({})
        for entry in self.journal:
            commit = decode_commit(entry)
            store.apply(commit.puts, commit.deletes)
        entry = ShardEntry("work-0", tile(1)[0], "w0", self.token)
        self.shard: Shard = self.assembly.make_shard("work", entry, store, self.router)
        self.waiting: list[tuple[PendingCommit, bytes]] = []
        self.acked: list[Arrival] = []
        self.shard.start()

    def stored(self) -> dict[bytes, bytes]:
        """What the shard's store holds."""
        return dict(self.shard.store.scan(b""))

    @property
    def now(self) -> int:
        return self.clock.now

    # --- what comes in ----------------------------------------------------------------------------

    def deliver(
        self, *rows: tuple[str, Any, int], channel: str = "up", first: int = 1, ids: Any = None
    ) -> DeliveryOutcome:
        """One delivery in an epoch of its own: rows of (key, value, timestamp), numbered from
        ``first``."""
        epoch = self.index[channel] = self.index.get(channel, 0) + 1
        values = [msgspec.Raw(encode_value(value)) for _, value, _ in rows]
        seqs = [] if first == 0 else list(range(first, first + len(rows)))
        batch = Batch(
            "events", seqs, [r[2] for r in rows], [r[0] for r in rows], values, ids, self.now
        )
        return self.shard.offer(channel, epoch, 0, decode_batch(encode_batch(batch)), "route")

    def watermark(self, us: int) -> None:
        self.shard.watermark.input = us

    # --- what happens -----------------------------------------------------------------------------

    def run(self) -> None:
        """Turns as long as there is something to do; what may be written goes to the journal's
        queue."""
        while self.shard.admission.runnable(self.now):
            self.shard.run(self.now)
        self.waiting += self.shard.commits.submittable(self.now)

    def settle(self) -> list[Commit]:
        """The journal writes everything that waits."""
        written = []
        for pending, entry in self.waiting:
            if entry:
                self.journal.append(entry)
                written.append(decode_commit(entry))
            self.acked += self.shard.durable(pending, self.now)
        self.waiting.clear()
        return written

    def sends(self) -> list[Send]:
        return list(self.shard.outbox.sends())

    def ack(self, *sends: Send) -> None:
        for send in sends:
            self.shard.outbox.ack(send.channel, send.target, send.epoch, send.index)

    def through(self) -> list[Any]:
        """Run, settle, send and be acked until nothing moves; the values that went to ``out``."""
        found: list[Any] = []
        for _ in range(10):
            self.run()
            self.settle()
            sends = self.sends()
            found += values_of(sends, "out")
            self.letters = getattr(self, "letters", []) + values_of(sends, DEAD_LETTERS)
            self.ack(*sends)
        return found


def values_of(sends: list[Send], stream: str) -> list[Any]:
    """The decoded values that went out on one stream."""
    return [
        msgspec.msgpack.decode(raw)
        for send in sends
        if send.batch.stream == stream
        for raw in send.batch.values
    ]
