"""Declarative windows and timers over data that is out of order and late, against an oracle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from millwheel.adapters.ports import Clock
from millwheel.api import Computation, ListState
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.keys import Divided
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine.workers.delivery.combining import CombineLimits
from millwheel.engine.workers.host.assembly import Assembly
from tests.computations import changed, computation_spec
from tests.sim.asking import AskingWindows
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

if TYPE_CHECKING:
    from tests.sim.world import World

DELAY_US = 3 * SECOND
WAIT_US = 5 * SECOND
_BURST_US = 200_000
FIELDS = {"key": "str", "n": "int", "p": "int", "ts": "int"}
"""Declared fields: windows over them keep their state in columns."""


class Reminder(Computation):
    """Each record sets a timer; when it fires, every record at or before its time has been seen."""

    seen = ListState(int)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.append(record.timestamp)
        ctx.set_timer(
            f"{record.value['p']}/{record.value['n']}", record.timestamp + WAIT_US, Domain.EVENT
        )

    def process_timer(self, ctx: Any, timer: Any) -> None:
        before = sum(1 for at in self.seen if at <= timer.at)
        ctx.produce("reminders", {"key": ctx.key, "tag": timer.tag, "before": before})


class Windows(Workload):
    """A source with late records → three kinds of windows, and windows over their results →
    sinks."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Reminder": Reminder}
        self.keys = self.rng.choice([1, 4, 15])
        self.size_us = self.rng.choice([2, 10]) * SECOND
        self.every_us = self.size_us // self.rng.choice([2, 5])
        self.fields = Random(seed).choice([{}, FIELDS])
        self.gap_us = self.rng.choice([1, 3]) * SECOND
        self.rows = {"clicks": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 3))}}

    def _partition(self, number: int) -> list[Any]:
        rng, rows, time = self.rng, [], START_US
        for n in range(self.count(0, 100)):
            time += rng.randint(0, SECOND)
            late = rng.random() < 0.05
            stamp = time - (60 * SECOND if late else rng.randint(0, DELAY_US - 1))
            rows.append({"key": f"k{rng.randrange(self.keys)}", "n": n, "p": number, "ts": stamp})
        return rows

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "clicks"})
        stream = StreamSpec(
            "clicks", source, timestamp="ts", max_delay_us=DELAY_US, fields=self.fields
        )
        count = (AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n"))
        given = (InputSpec("clicks", by("key")),)
        computations = (
            self._window(
                "tumbling", given, WindowSpec("tumbling", {"size_us": self.size_us}), count
            ),
            self._window(
                "sliding",
                given,
                WindowSpec("sliding", {"size_us": self.size_us, "every_us": self.every_us}),
                count,
            ),
            self._window("session", given, WindowSpec("session", {"gap_us": self.gap_us}), count),
            self._window(
                "again",
                (InputSpec("tumbling_out", by("count")),),
                WindowSpec("tumbling", {"size_us": 2 * self.size_us}),
                (AggregateSpec("windows", "count"), AggregateSpec("total", "sum", "sum")),
            ),
            computation_spec(
                "reminder",
                given,
                ("reminders",),
                callback="sim:Reminder",
                productions=self.productions,
                max_attempts=1,
            ),
        )
        streams = (
            "tumbling_out",
            "sliding_out",
            "session_out",
            "again_out",
            "reminders",
            "dead_letters",
        )
        return PipelineSpec(
            "sim",
            (stream,),
            computations,
            tuple(SinkSpec(name, "memory") for name in streams),
            "/nowhere",
        )

    def _window(
        self,
        name: str,
        inputs: tuple[InputSpec, ...],
        window: WindowSpec,
        aggregates: tuple[AggregateSpec, ...],
    ) -> ComputationSpec:
        return computation_spec(
            name, inputs, (f"{name}_out",), window=window, aggregates=aggregates
        )

    # --- the oracle

    def check_day(self, ends: Mapping[str, Mapping[str, int]]) -> None:
        """Every tumbling window that the watermark has passed is visible."""
        read = {name: rows[: ends["clicks"][name]] for name, rows in self.rows["clicks"].items()}
        if not all(read.values()):
            return
        watermark = min(max(row["ts"] for row in rows) for rows in read.values()) - DELAY_US
        grouped = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"])
            for row in self.on_time(read.values())
        )
        closed = {at: ns for at, ns in grouped.items() if at[1] + self.size_us < watermark}
        missing = self._counted(closed) - self._found("tumbling_out")
        equal("closed windows when a run has caught up", Counter(), missing)

    def on_time(self, partitions: Iterable[list[Any]] | None = None) -> Iterator[dict[str, Any]]:
        """The records that are not further behind their own partition than the delay."""
        for rows in self.rows["clicks"].values() if partitions is None else partitions:
            highest = -(2**63)
            for row in rows:
                if row["ts"] >= highest - DELAY_US:
                    yield row
                highest = max(highest, row["ts"])

    def check(self) -> None:
        rows = list(self.on_time())
        tumbling = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in rows
        )
        equal("tumbling", self._found("tumbling_out"), self._counted(tumbling))
        sliding = self._grouped(
            (row["key"], start, row["n"]) for row in rows for start in self._starts(row["ts"])
        )
        equal("sliding", self._found("sliding_out"), self._counted(sliding))
        equal("session", self._found("session_out"), self._counted(self._sessions(rows)))
        self._check_again(tumbling)
        self._check_reminders(rows)

    def _check_again(self, tumbling: dict[tuple[str, int], list[int]]) -> None:
        again: dict[tuple[int, int], list[int]] = defaultdict(list)
        for (_, start), ns in tumbling.items():
            last = start + self.size_us - 1
            again[len(ns), last - last % (2 * self.size_us)].append(sum(ns))
        got = Counter(
            (r["count"], r["window_start"], r["windows"], r["total"])
            for r in self.sinks.rows("again_out")
        )
        equal("again", got, Counter({(c, at, len(s), sum(s)): 1 for (c, at), s in again.items()}))
        equal(
            "dead_letters",
            Counter(letters=len(self.sinks.rows("dead_letters"))),
            Counter(letters=0),
        )

    def _check_reminders(self, rows: list[dict[str, Any]]) -> None:
        stamps: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            stamps[row["key"]].append(row["ts"])
        want = Counter(
            (
                row["key"],
                f"{row['p']}/{row['n']}",
                sum(1 for at in stamps[row["key"]] if at <= row["ts"] + WAIT_US),
            )
            for row in rows
        )
        equal(
            "reminders",
            Counter((r["key"], r["tag"], r["before"]) for r in self.sinks.rows("reminders")),
            want,
        )

    def _starts(self, stamp: int) -> Iterator[int]:
        start = stamp - stamp % self.every_us
        while start > stamp - self.size_us:
            yield start
            start -= self.every_us

    @staticmethod
    def _grouped(rows: Iterator[tuple[str, int, int]]) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for key, start, n in rows:
            found[key, start].append(n)
        return found

    def _sessions(self, rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            by_key[row["key"]].append((row["ts"], row["n"]))
        for key, pairs in by_key.items():
            start, last = 0, -(2**62)
            for at, n in sorted(pairs):
                if at >= last + self.gap_us:
                    start = at
                last = at
                found.setdefault((key, start), []).append(n)
        return found

    @staticmethod
    def _counted(groups: dict[tuple[str, int], list[int]]) -> Counter[Any]:
        return Counter({(key, start, len(ns), sum(ns)): 1 for (key, start), ns in groups.items()})

    def _found(self, stream: str) -> Counter[Any]:
        rows = self.sinks.rows(stream)
        return Counter((r["key"], r["window_start"], r["count"], r["sum"]) for r in rows)


class AskedWindows(Windows):
    """The same, while outsiders ask for the open windows and the newest results of the tumbling
    ones."""

    def spec(self) -> PipelineSpec:
        """Where newest results are kept, windows are in rows."""
        whole, kept = super().spec(), Random(f"queryable {self.seed}").choice(["", "latest"])
        asked = (
            changed(each, queryable=kept) if each.name == "tumbling" else each
            for each in whole.computations
        )
        return replace(whole, computations=tuple(asked))

    def attend(self, world: World) -> None:
        self._world = world
        AskingWindows(
            world, self.size_us, "tumbling", [f"k{number}" for number in range(self.keys)]
        )

    def check(self) -> None:
        super().check()
        self.check_answered()

    def check_answered(self) -> None:
        """Raise Failure unless questions were answered."""
        if any(self.rows["clicks"].values()) and not self._world.checkers.answers.answered:
            raise Failure("questions are answered: not one was")


class Scattered(Windows):
    """The same, with the keys of all windows divided: nothing of it shows in the results."""

    instances = 0

    def spec(self) -> PipelineSpec:
        whole = super().spec()
        instances = self.instances or Random(f"instances of {self.seed}").choice([2, 3, 7])
        divided = (
            replace(each, scatter=instances, divided=self.divided_of(each))
            if each.windowed is not None
            else each
            for each in whole.computations
        )
        return planned(replace(whole, computations=tuple(divided)))

    def divided_of(self, computation: ComputationSpec) -> Divided:
        """Which of its keys are divided."""
        return Divided.ALL


class Combined(Windows):
    """Tumbling and sliding windows over hot keys: now and then the source, or the shards of a
    computation, begin and end to send groups in place of records, in columns or in rows."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.fields = self.columns = FIELDS
        if Random(f"rows {seed}").random() < 0.5:
            self.fields, self.columns = {}, None
        # A read has few records here, so it begins with any number of groups, and ends with many.
        self._combine = CombineLimits(
            1, looks=self.rng.choice([1, 3]), enters=1.0, leaves=0.3, pause=2
        )
        self._owners = 0
        self.limits = replace(self.limits, settle_us=200_000)
        for rows in self.rows["clicks"].values():
            for row in rows[: 2 * len(rows) // 3]:
                row["key"] = self.rng.choice(["k0", row["key"]])
        self.unusable(Random(f"unusable {seed}"))

    def assembly(self, clock: Clock) -> Assembly:
        # Each owner ends at another number: what one has sent as records, the next one would send
        # in groups.
        self._owners += 1
        leaves = Random(f"leaves {self.seed} {self._owners}").choice([0.2, 0.5, 2.0])
        self.limits = replace(self.limits, combine=replace(self._combine, leaves=leaves))
        return super().assembly(clock)

    def unusable(self, rng: Random) -> None:
        """In some seeds a read has a number that does not fit columns, and goes by rows."""
        for rows in self.rows["clicks"].values():
            if rows and rng.random() < 0.3:
                rows[rng.randrange(len(rows))]["n"] = 2**61

    def spec(self) -> PipelineSpec:
        whole = super().spec()
        self._slides = Random(f"slides {self.seed}").random() < 0.5
        names = ("tumbling", "again", *(["sliding"] if self._slides else []))
        mine = tuple(each for each in whole.computations if each.name in names)
        shown = tuple(
            each
            for each in whole.sinks
            if each.stream in ("dead_letters", *(f"{name}_out" for name in names))
        )
        return replace(whole, computations=mine, sinks=shown)

    def check(self) -> None:
        grouped = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in self.on_time()
        )
        equal("tumbling", self._found("tumbling_out"), self._counted(grouped))
        if self._slides:
            of_all = (
                (row["key"], start, row["n"])
                for row in self.on_time()
                for start in self._starts(row["ts"])
            )
            equal("sliding", self._found("sliding_out"), self._counted(self._grouped(of_all)))
        self._check_again(grouped)


class HotOnly(Scattered):
    """The same, with only hot keys divided: a source finds them while it reads, and a shard while
    it produces."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        # Short reads, so that there are many epochs, of which the last are sent and not committed
        # when a worker dies.
        self.limits = replace(self.limits, bundle=self.rng.choice([1, 2, 3]), settle_us=200_000)
        for rows in self.rows["clicks"].values():
            for row in rows[: 2 * len(rows) // 3]:
                row["key"] = self.rng.choice(["k0", row["key"]])

    def divided_of(self, computation: ComputationSpec) -> Divided:
        return Divided.HOT


class Grouped(HotOnly):
    """The same, with a grouping that chooses the instance of each record by tables and counts."""

    def divided_of(self, computation: ComputationSpec) -> Divided:
        return Random(f"grouping of {self.seed}").choice(
            [each for each in Divided if each.by_slots]
        )


class Trickling(Grouped):
    """The same in tumbling windows, with input that comes in bursts all the time while workers die.
    Of a burst, the first records are committed, and the others have been sent with the counts of
    later positions."""

    instances = 7

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.span_us = 5 * SECOND
        # Epochs are longer than bursts, and the turns of seven instances do not end with reads.
        self.limits = replace(self.limits, bundle=2, settle_us=100_000)
        self.keys = max(self.keys, 4)
        self.rows = {"clicks": {f"p{number}": self._partition(number) for number in range(2)}}

    def count(self, low: int, high: int) -> int:
        return super().count(2 * low + high, 3 * high)

    def spec(self) -> PipelineSpec:
        whole = super().spec()
        # With fewer shards several instances lie in one, which recognizes a record whatever its
        # instance.
        mine = tuple(
            replace(each, shards=self.instances)
            for each in whole.computations
            if each.name.removeprefix("partial.") == "tumbling"
        )
        return replace(
            whole,
            computations=mine,
            sinks=tuple(s for s in whole.sinks if s.stream == "tumbling_out"),
        )

    def _released(self, rows: int) -> int:
        passed = (self.now() - START_US) // _BURST_US * _BURST_US
        return rows if passed >= self.span_us else rows * passed // self.span_us

    def divided_of(self, computation: ComputationSpec) -> Divided:
        # Most groupings keep counts even, and from other even counts they choose much the same.
        # Taking turns shows all.
        rng, others = (
            Random(f"grouping of {self.seed}"),
            [each for each in Divided if each.by_slots],
        )
        return rng.choice([Divided.SHUFFLE, Divided.SHUFFLE, rng.choice(others)])

    def check(self) -> None:
        grouped = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in self.on_time()
        )
        equal("tumbling", self._found("tumbling_out"), self._counted(grouped))
