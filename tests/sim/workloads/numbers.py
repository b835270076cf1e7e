"""Records are numbered per key, with timers, poison and timestamps in the far future, and counted
in windows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

DAY = 86_400 * SECOND


class Counting(Computation):
    """Numbers the records of each key; the numbers must come out 1, 2, 3 … exactly once each. Every
    tenth record sets a timer, which must fire once."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.value["n"] % 97 == 13:
            raise ValueError("a poison record")
        number = self.seen.get() + 1
        self.seen.set(number)
        row = {"key": ctx.key, "number": number, "n": record.value["n"], "p": record.value["p"]}
        ctx.produce("numbered", row, timestamp=record.timestamp)
        if number % 10 == 0:
            ctx.set_timer(f"t{number}", record.timestamp + SECOND, Domain.EVENT)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("rung", {"key": ctx.key, "tag": timer.tag, "seen": self.seen.get()})


class CountingTogether(Counting):
    """The same with the records of a key together."""

    def process_batch(self, ctx: Any, records: Any) -> None:
        for record in records:
            self.process_record(ctx, record)


class Numbers(Workload):
    """Sources → numbering per key with timers and poison → windows over the numbers → sinks."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {
            "sim:Counting": random.Random(f"batches {seed}").choice([Counting, CountingTogether])
        }
        self.keys = self.rng.choice([1, 3, 20])
        partitions = self.rng.randint(1, 4)
        self.rows = {"events": {f"p{i}": self._partition(self.rng, i) for i in range(partitions)}}
        own = random.Random(seed ^ 0xFA7)
        share = own.choice([0, 0.01, 0.1])
        for number, rows in enumerate(self.rows["events"].values()):
            self._mix_in_far(own, share, number, rows)

    def _mix_in_far(
        self, rng: random.Random, share: float, partition: int, rows: list[Any]
    ) -> None:
        """Records too far in the future become dead letters, and judge nothing else in their
        partition."""
        for index in [index for index in range(len(rows), 0, -1) if rng.random() < share]:
            stamp = START_US + rng.randint(3, 300) * DAY
            row = {
                "key": f"k{rng.randrange(self.keys)}",
                "n": index,
                "p": partition,
                "id": f"f{index}",
                "ts": stamp,
            }
            rows.insert(rng.randint(0, index), row)

    def _partition(self, rng: random.Random, number: int) -> list[Any]:
        rows: list[Any] = []
        time = START_US
        for n in range(self.count(0, 150)):
            time += rng.randint(0, SECOND)
            late = rng.random() < 0.02
            stamp = time - (30 * SECOND if late else rng.randint(0, SECOND))
            row = {
                "key": f"k{rng.randrange(self.keys)}",
                "n": n,
                "p": number,
                "id": f"{number}-{n}",
                "ts": stamp,
            }
            rows.append(row)
            if rng.random() < 0.05:
                rows.append(dict(row))
            if rng.random() < 0.02:
                rows.append(None)
            if rng.random() < 0.02:
                rows.append({"n": n, "p": number, "id": f"x{number}-{n}", "ts": stamp})
        return rows

    def spec(self) -> PipelineSpec:
        stream = StreamSpec(
            "events",
            SourceSpec("memory", {"stream": "events"}),
            timestamp="ts",
            id="id",
            max_delay_us=2 * SECOND,
        )
        counting = computation_spec(
            "counting",
            (InputSpec("events", by("key")),),
            ("numbered", "rung"),
            callback="sim:Counting",
            delivery=self.delivery,
            productions=self.productions,
            max_attempts=2,
        )
        totals = computation_spec(
            "totals",
            (InputSpec("numbered", by("p")),),
            ("per_window",),
            window=WindowSpec("tumbling", {"size_us": 10 * SECOND}),
            aggregates=(AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n")),
        )
        sinks = tuple(
            SinkSpec(name, "memory") for name in ("numbered", "rung", "per_window", "dead_letters")
        )
        return PipelineSpec("sim", (stream,), (counting, totals), sinks, "/nowhere")

    # --- what must have come out ------------------------------------------------------------------

    def expected(self) -> tuple[Counter[str], list[tuple[int, int, int]], int]:
        """(records per key, the same records as (partition, n, timestamp), dead letters)."""
        good: Counter[str] = Counter()
        records: list[tuple[int, int, int]] = []
        dead = 0
        for rows in self.rows["events"].values():
            highest = -(2**63)
            seen: set[str] = set()
            for row in rows:
                if row is None or row["ts"] > START_US + 2 * DAY:
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
        """Raises Failure unless every sink holds exactly what it must. Weak productions promise
        each record once, but not that a computation which is not idempotent numbers it the same
        when it runs again after a crash."""
        good, records, dead = self.expected()
        numbered = self.sinks.rows("numbered")
        if self.productions is Productions.STRONG:
            equal(
                "numbered",
                Counter((r["key"], r["number"]) for r in numbered),
                Counter({(k, i + 1): 1 for k, c in good.items() for i in range(c)}),
            )
        equal(
            "records",
            Counter((r["p"], r["n"]) for r in numbered),
            Counter((p, n) for p, n, _ in records),
        )
        if self.productions is Productions.STRONG:
            self._in_order(numbered)
        rung = Counter((r["key"], r["tag"]) for r in self.sinks.rows("rung"))
        equal(
            "rung",
            rung,
            Counter({(k, f"t{i}"): 1 for k, c in good.items() for i in range(10, c + 1, 10)}),
        )
        windows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for p, n, stamp in records:
            windows[p, stamp - stamp % (10 * SECOND)].append(n)
        want = Counter({(p, start, len(ns), sum(ns)): 1 for (p, start), ns in windows.items()})
        got = Counter(
            (r["p"], r["window_start"], r["count"], r["sum"]) for r in self.sinks.rows("per_window")
        )
        equal("per_window", got, want)
        letters = self.sinks.rows("dead_letters")
        equal("dead_letters", Counter(len_=len(letters)), Counter(len_=dead))

    def _in_order(self, numbered: list[Any]) -> None:
        """Records of one key from one partition were processed in their order."""
        by: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for row in numbered:
            by[row["key"], row["p"]].append((row["number"], row["n"]))
        for index, pairs in by.items():
            ns = [n for _, n in sorted(pairs)]
            if ns != sorted(ns):
                raise Failure(f"records of {index} were processed out of order: {ns}")
