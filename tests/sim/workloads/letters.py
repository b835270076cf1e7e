"""Dead letters that are consumed, together with the stream whose records they are about."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.replays import Again, ReplayOrder
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_AGAIN = 99
"""What stands for a partition in records that are tried again."""


class Telling(Computation):
    """Says of each record and of each letter that it came."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        if record.stream == DEAD_LETTERS:
            letter = record.value
            ctx.produce(
                "told",
                {
                    "place": letter["position"],
                    "about": letter["computation"],
                    "at": record.timestamp,
                },
            )
        else:
            ctx.produce("told", {"place": f"p{record.value['p']}@{record.value['n']}", "about": ""})


class Passing(Computation):
    """A second consumer with a key of its own, so a record can have a letter from each."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("passed", record.value)


class Letters(Workload):
    """Sources → a computation for the records and their letters, another for the records alone →
    sinks."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Telling": Telling, "sim:Passing": Passing}
        self.share = self.rng.choice([0.02, 0.3, 0.9])
        self.stride = Random(seed).choice([1, 1 << 55])
        self.again = self._again(Random(seed ^ 0xA6A1))
        self.replays = [ReplayOrder("sim", self.again)] if self.again else []
        self.rows = {"events": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 3))}}

    def _again(self, rng: Random) -> list[Again]:
        """Records that were dead letters once, for either computation."""
        found = []
        for n in range(rng.choice([0, rng.randint(1, 60)])):
            row = {
                "n": n,
                "p": _AGAIN,
                "ts": START_US + n * SECOND,
                "a": rng.randrange(4),
                "b": n % 3,
            }
            node, field = rng.choice([("telling", "a"), ("passing", "b")])
            found.append(Again(f"letter:{n}", node, "events", row[field], row["ts"], row, []))
        return found

    def _partition(self, number: int) -> list[Any]:
        rows: list[Any] = []
        for n in range(1, self.count(1, 80) + 1):
            row = {
                "n": n,
                "p": number,
                "ts": START_US + n * SECOND,
                "a": self.rng.randrange(4),
                "b": n % 3,
            }
            if self.rng.random() < self.share:
                spoilt = self.rng.choice(["all", "ts", "a", "b", "ab"])
                row = (
                    {}
                    if spoilt == "all"
                    else {name: row[name] for name in row if name not in (spoilt, *spoilt)}
                )
            rows.append(row or None)
        return rows

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "events"})
        stream = StreamSpec("events", source, timestamp="ts", max_delay_us=SECOND)
        telling = computation_spec(
            "telling",
            (InputSpec("events", by("a")), InputSpec(DEAD_LETTERS, by("computation"))),
            ("told",),
            callback="sim:Telling",
            productions=self.productions,
        )
        passing = computation_spec(
            "passing",
            (InputSpec("events", by("b")),),
            ("passed",),
            callback="sim:Passing",
            productions=self.productions,
        )
        sinks = tuple(SinkSpec(name, "memory") for name in ("told", "passed", DEAD_LETTERS))
        return PipelineSpec("sim", (stream,), (telling, passing), sinks, "/nowhere")

    def check(self) -> None:
        told: Counter[tuple[str, str]] = Counter()
        times: dict[str, int] = {}
        letters: Counter[tuple[str, str]] = Counter()
        passed: Counter[tuple[int, int]] = Counter()
        for partition, rows in self.rows["events"].items():
            highest = 0
            for n, row in enumerate(rows, 1):
                index = f"{partition}@{n * self.stride}"
                times[index] = max(highest - SECOND, 0)
                highest = max(highest, (row or {}).get("ts", 0))
                if row is None or "ts" not in row:
                    letters[index, "source.events"] += 1
                    continue
                if "a" in row:
                    told[f"{partition}@{n}", ""] += 1
                else:
                    letters[index, "telling"] += 1
                if "b" in row:
                    passed[row["p"], row["n"]] += 1
                else:
                    letters[index, "passing"] += 1
        for again in self.again:
            if again.node == "telling":
                told[f"p{_AGAIN}@{again.value['n']}", ""] += 1
            else:
                passed[_AGAIN, again.value["n"]] += 1
        rows = self.sinks.rows("told")
        stamps = {row["place"]: row["at"] for row in rows if "at" in row}
        equal(
            "the times of letters",
            Counter(stamps.items()),
            Counter({(each, times[each]): 1 for each in stamps}),
        )
        got = Counter((row["place"], row["about"]) for row in rows)
        equal("told", got, told + letters)
        equal("passed", Counter((row["p"], row["n"]) for row in self.sinks.rows("passed")), passed)
        rows = self.sinks.rows(DEAD_LETTERS)
        equal(
            "dead_letters", Counter((row["position"], row["computation"]) for row in rows), letters
        )
