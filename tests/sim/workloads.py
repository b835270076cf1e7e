"""What a simulated cluster works on, and what must have come out of it in the end."""

from __future__ import annotations

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from millwheel.api import Computation, ValueState
from millwheel.core.records import Domain
from millwheel.core.spec import (
    AggregateSpec,
    ComputationSpec,
    Delivery,
    InputSpec,
    KeyKind,
    KeySpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    WindowSpec,
)
from millwheel.sinks.base import Cut
from millwheel.sources.base import Chunk, Partition, Reject
from millwheel.workers.assembly import Assembly, Outside
from millwheel.workers.shard import ShardLimits
from tests.sim.world import START_US, Failure, SimClock

SECOND = 1_000_000


class Counting(Computation):
    """Numbers the records of each key; the numbers must come out 1, 2, 3 … exactly once each. Every tenth record
    sets a timer, which must fire once."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.value["n"] % 97 == 13:
            raise ValueError("a poison record")
        number = self.seen.get() + 1
        self.seen.set(number)
        ctx.produce("numbered", {"key": ctx.key, "number": number, "n": record.value["n"], "p": record.value["p"]})
        if number % 10 == 0:
            ctx.set_timer(f"t{number}", record.timestamp + SECOND, Domain.EVENT)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("rung", {"key": ctx.key, "tag": timer.tag, "seen": self.seen.get()})


class MemorySource:
    """Partitions of made-up records with key, number, id and timestamp: some late, some twice, some no record."""

    bounded = True

    def __init__(self, rows: dict[str, list[Any]]) -> None:
        self.rows = rows

    def partitions(self) -> Sequence[Partition]:
        return [Partition(name) for name in sorted(self.rows)]

    def open(self, partition: Partition) -> MemoryReader:
        return MemoryReader(self.rows[partition.name])


class MemoryReader:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def read(self, position: int, max_records: int) -> Chunk:
        rows = self._rows[position : position + max_records]
        good = [(position + i + 1, row) for i, row in enumerate(rows) if row is not None]
        bad = [Reject(position + i + 1, "?", "no record") for i, row in enumerate(rows) if row is None]
        after = position + len(rows)
        return Chunk([p for p, _ in good], [dict(r) for _, r in good], after, bad, after >= len(self._rows))

    def close(self) -> None:
        pass


class MemorySinks:
    """The outside world: what is visible in each sink. Prepared cuts are invisible until published, by name."""

    def __init__(self) -> None:
        self.visible: dict[str, dict[str, list[Any]]] = defaultdict(dict)
        self.prepared: dict[bytes, tuple[str, str, list[Any]]] = {}

    def build(self, spec: SinkSpec, folder: str) -> MemorySink:
        return MemorySink(self, spec.stream)

    def rows(self, stream: str) -> list[Any]:
        return [row for rows in self.visible[stream].values() for row in rows]


class MemorySink:
    flush_us = 20_000
    cut_records = 50

    def __init__(self, world: MemorySinks, stream: str) -> None:
        self._world = world
        self._stream = stream

    def open(self, shard: str, token: int) -> MemoryWriter:
        return MemoryWriter(self._world, self._stream, shard)


class MemoryWriter:
    def __init__(self, world: MemorySinks, stream: str, shard: str) -> None:
        self._world = world
        self._stream = stream
        self._shard = shard

    def prepare(self, cut: Cut) -> bytes:
        receipt = f"{self._shard}/{cut.number}/{cut.attempt}".encode()
        rows = [record.value for record in cut.records]
        self._world.prepared[receipt] = (self._stream, f"{self._shard}/{cut.number}", rows)
        return receipt

    def publish(self, receipt: bytes) -> None:
        stream, name, rows = self._world.prepared[receipt]
        visible = self._world.visible[stream]
        if name in visible and visible[name] != rows:
            raise Failure(f"cut {name} of {stream} was published twice with different rows")
        visible[name] = rows

    def sweep(self, receipts: list[bytes]) -> None:
        pass

    def close(self) -> None:
        pass


def _by(field: str) -> KeySpec:
    return KeySpec(KeyKind.FIELD, (field,))


class Numbers:
    """Sources → numbering per key with timers and poison → windows over the numbers → sinks."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed ^ 0x5EED)
        self.sinks = MemorySinks()
        self.keys = rng.choice([1, 3, 20])
        self.rows = {f"p{i}": self._partition(rng, i) for i in range(rng.randint(1, 4))}
        self.delivery = Delivery.EXACTLY_ONCE
        self.productions = rng.choice([Productions.STRONG, Productions.STRONG, Productions.WEAK])
        self.limits = ShardLimits(
            bundle=rng.choice([1, 7, 40]),
            timers=rng.choice([1, 10]),
            window=rng.choice([5, 50, 500]),
            pending=rng.choice([20, 500]),
        )

    def _partition(self, rng: random.Random, number: int) -> list[Any]:
        rows: list[Any] = []
        time = START_US
        for n in range(rng.randint(0, 250)):
            time += rng.randint(0, SECOND)
            late = rng.random() < 0.02
            stamp = time - (30 * SECOND if late else rng.randint(0, SECOND))
            row = {"key": f"k{rng.randrange(self.keys)}", "n": n, "p": number, "id": f"{number}-{n}", "ts": stamp}
            rows.append(row)
            if rng.random() < 0.05:
                rows.append(dict(row))
            if rng.random() < 0.02:
                rows.append(None)
            if rng.random() < 0.02:
                rows.append({"n": n, "p": number, "id": f"x{number}-{n}", "ts": stamp})
        return rows

    def spec(self) -> PipelineSpec:
        stream = StreamSpec("events", SourceSpec("memory"), timestamp="ts", id="id", max_delay_us=2 * SECOND)
        counting = ComputationSpec(
            "counting",
            (InputSpec("events", _by("key")),),
            ("numbered", "rung"),
            callback="sim:Counting",
            delivery=self.delivery,
            productions=self.productions,
            max_attempts=2,
        )
        totals = ComputationSpec(
            "totals",
            (InputSpec("numbered", _by("p")),),
            ("per_window",),
            window=WindowSpec("tumbling", {"size_us": 10 * SECOND}),
            aggregates=(AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n")),
        )
        sinks = tuple(SinkSpec(name, "memory") for name in ("numbered", "rung", "per_window", "dead_letters"))
        return PipelineSpec("sim", (stream,), (counting, totals), sinks, "/nowhere")

    def assembly(self, clock: SimClock) -> Assembly:
        root = Path(tempfile.mkdtemp(prefix="sim-"))
        (root / "inputs").mkdir()
        source = MemorySource(self.rows)
        (root / "inputs" / "events.json").write_bytes(msgspec.json.encode(source.partitions()))
        outside = Outside(lambda *_: source, self.sinks.build, lambda name, folder: Counting)
        return Assembly(self.spec(), str(root), clock, outside, self.limits)

    # --- what must have come out -------------------------------------------------------------------------

    def expected(self) -> tuple[Counter[str], list[tuple[int, int, int]], int]:
        """(records per key, the same records as (partition, n, timestamp), dead letters)."""
        good: Counter[str] = Counter()
        records: list[tuple[int, int, int]] = []
        dead = 0
        for rows in self.rows.values():
            highest = -(2**63)
            seen: set[str] = set()
            for row in rows:
                if row is None:
                    dead += 1
                    continue
                late = row["ts"] < highest - 2 * SECOND if highest > -(2**63) else False
                highest = max(highest, row["ts"])
                if late:
                    continue
                if "key" not in row:
                    dead += 1
                elif row["id"] not in seen:
                    seen.add(row["id"])
                    if row["n"] % 97 == 13:
                        dead += 1
                    else:
                        good[row["key"]] += 1
                        records.append((row["p"], row["n"], row["ts"]))
        return good, records, dead

    def check(self) -> None:
        """Raises Failure unless every sink holds exactly what it must. Weak productions promise each record once,
        but not that a computation which is not idempotent numbers it the same when it runs again after a crash."""
        good, records, dead = self.expected()
        numbered = self.sinks.rows("numbered")
        if self.productions is Productions.STRONG:
            self._equal(
                "numbered",
                Counter((r["key"], r["number"]) for r in numbered),
                Counter({(k, i + 1): 1 for k, c in good.items() for i in range(c)}),
            )
        self._equal("records", Counter((r["p"], r["n"]) for r in numbered), Counter((p, n) for p, n, _ in records))
        if self.productions is Productions.STRONG:
            self._in_order(numbered)
        rung = Counter((r["key"], r["tag"]) for r in self.sinks.rows("rung"))
        self._equal("rung", rung, Counter({(k, f"t{i}"): 1 for k, c in good.items() for i in range(10, c + 1, 10)}))
        windows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for p, n, stamp in records:
            windows[p, stamp - stamp % (10 * SECOND)].append(n)
        want = Counter({(p, start, len(ns), sum(ns)): 1 for (p, start), ns in windows.items()})
        got = Counter((r["p"], r["window_start"], r["count"], r["sum"]) for r in self.sinks.rows("per_window"))
        self._equal("per_window", got, want)
        letters = self.sinks.rows("dead_letters")
        self._equal("dead_letters", Counter(len_=len(letters)), Counter(len_=dead))

    def _in_order(self, numbered: list[Any]) -> None:
        """Records of one key from one partition were processed in their order."""
        by: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for row in numbered:
            by[row["key"], row["p"]].append((row["number"], row["n"]))
        for place, pairs in by.items():
            ns = [n for _, n in sorted(pairs)]
            if ns != sorted(ns):
                raise Failure(f"records of {place} were processed out of order: {ns}")

    @staticmethod
    def _equal(what: str, got: Counter[Any], want: Counter[Any]) -> None:
        if got != want:
            missing, extra = want - got, got - want
            raise Failure(f"{what}: missing {list(missing.items())[:5]}, too many {list(extra.items())[:5]}")


WORKLOADS: dict[str, Callable[[int], Numbers]] = {"numbers": Numbers}
