"""Computations without state behind each other: those that are chained run in the shards of the
first. Each record counts once in every one of them, and so does each of their dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.replays import Again, ReplayOrder
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import BranchSpec, StepKind, StepSpec
from tests.computations import computation_spec
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_FIELDS = {"key": "str", "p": "int", "n": "int", "a": "int", "ts": "int"}
_AGAIN = 99
"""What stands for a partition in records that are tried again."""


class Tallying(Computation):
    """Numbers the records of each key."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.produce("tallied", {"key": record.key, "number": self.seen.get()})


class Chains(Workload):
    """Sources → first → (second → tallies), (parting → even, odd), and another consumer of what
    first makes, which keeps its own shards; a sink for each stream but one. Each node of the chain
    fails on some records. ``read``: first takes records as they are read, so the chain runs in the
    shards of the source; it fails on some, too. ``ends``: so does second alone, with its sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = Random(f"chains {seed}")
        self.productions = Productions.STRONG
        self.code = {"sim:Tallying": Tallying}
        self.keys = own.choice([1, 3, 20])
        self.shared = own.random() < 0.5
        """Whether a stream within the chain is consumed outside of it, too."""
        self.columns = own.choice([{}, _FIELDS])
        self.read = Random(f"chains behind sources {seed}").random() < 0.6
        self.ends = self.read and Random(f"chains into sinks {seed}").random() < 0.5
        self.shared = self.shared and not self.ends
        self.rows = {"events": {f"p{i}": self._partition(own, i) for i in range(own.randint(1, 3))}}
        self.again = [
            {"key": f"k{own.randrange(self.keys)}", "p": _AGAIN, "n": n, "a": own.randrange(4)}
            for n in range(own.choice([0, 30]))
        ]
        records = [
            Again(f"letter:{n}", "second", "ones", row["key"], START_US, {**row, "q": 0}, [])
            for n, row in enumerate(self.again)
        ]
        self.replays = [ReplayOrder("sim", records)] if records else []

    def _partition(self, rng: Random, number: int) -> list[Any]:
        return [
            {
                "key": f"k{rng.randrange(self.keys)}",
                "p": number,
                "n": n,
                "a": rng.randrange(4),
                "ts": None if self.read and n % 31 == 30 else START_US + n * SECOND // 10,
            }
            for n in range(self.count(1, 120))
        ]

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "events"})
        stream = StreamSpec(
            "events", source, timestamp="ts", max_delay_us=SECOND, fields=self.columns
        )
        kept = KeySpec(KeyKind.RECORD)
        fields = {name: name for name in ("key", "p", "n", "a")}
        first = computation_spec(
            "first",
            (InputSpec("events", kept if self.read else by("key")),),
            ("ones",),
            steps=(StepSpec(StepKind.MAP, fields={**fields, "q": "12 // a"}),),
        )
        second = computation_spec(
            "second",
            (InputSpec("ones", kept),),
            ("twos",),
            steps=(
                StepSpec(StepKind.FILTER, expression="n % 7 != 6"),
                StepSpec(StepKind.MAP, fields={**fields, "r": "60 // (n % 5)"}),
            ),
        )
        parting = computation_spec(
            "parting",
            (InputSpec("ones", kept),),
            ("even", "odd"),
            branches=(BranchSpec("even", "6 // (n % 4) >= 0 and n % 2 == 0"), BranchSpec("odd")),
        )
        tallies = computation_spec(
            "tallies",
            (InputSpec("twos", by("key") if self.read else kept),),
            ("tallied",),
            callback="sim:Tallying",
        )
        apart = computation_spec(
            "apart",
            (InputSpec("ones", by("a")),),
            ("aside",),
            steps=(StepSpec(StepKind.MAP, fields=fields),),
        )
        others = () if self.ends else (parting, tallies)
        computations = (first, second, *others, *([apart] if self.shared else []))
        return PipelineSpec(
            "sim",
            (stream,),
            computations,
            tuple(SinkSpec(name, "files") for name in (*self._ends(), DEAD_LETTERS)),
            "/nowhere",
        )

    def _ends(self) -> tuple[str, ...]:
        """The streams with a sink, besides dead letters."""
        if self.ends:
            return ("twos",)
        return ("even", "odd", "tallied", "twos", *(["aside"] if self.shared else []))

    def check(self) -> None:
        wanted: dict[str, Counter[Any]] = {}
        letters: Counter[Any] = Counter()
        tallied: Counter[str] = Counter()
        for name, row in self._made():
            if name.startswith("!"):
                letters[name[1:], row["p"], row["n"]] += 1
                continue
            wanted.setdefault(name, Counter())[row["p"], row["n"]] += 1
            tallied[row["key"]] += name == "twos" and not self.ends
        for name in set(self._ends()) - {"tallied"}:
            rows = self.sinks.rows(name)
            found = Counter((row["p"], row["n"]) for row in rows)
            equal(name, found, wanted.get(name, Counter()))
        numbers = Counter((row["key"], row["number"]) for row in self.sinks.rows("tallied"))
        equal(
            "tallies",
            numbers,
            Counter((key, n + 1) for key, count in tallied.items() for n in range(count)),
        )
        rows = self.sinks.rows(DEAD_LETTERS)
        found = Counter((r["computation"], r["value"]["p"], r["value"]["n"]) for r in rows)
        equal("dead letters", found, letters)

    def _made(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What each record becomes, by stream; a letter of a node has a mark before its name."""
        rows = self.all_rows("events")
        for row in rows:
            if row["ts"] is None or not row["a"]:
                yield "!first" if row["ts"] is not None else "!source.events", row
                continue
            yield from [("aside", row)] if self.shared else []
            yield from self._seconds(row)
            if self.ends:
                continue
            ways = {0: "!parting", 2: "even"}
            yield ways.get(row["n"] % 4, "odd"), row
        for row in self.again:
            yield from self._seconds(row)

    @staticmethod
    def _seconds(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if row["n"] % 7 != 6:
            yield ("twos" if row["n"] % 5 else "!second"), row
