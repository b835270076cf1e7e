"""Callbacks that never return, or end their worker, and some that take long and do neither."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.model.limits import Limits
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import WindowSpec
from tests.computations import computation_spec
from tests.sim.dying import die
from tests.sim.hanging import never_return, take
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_TIMEOUT_US = SECOND // 5
_SIZE_US = 10 * SECOND
LINE = "line that hangs"
"""What cannot be read."""


def _end(how: str) -> None:
    """In a callback: what it does in place of returning."""
    if how:
        die(how)
    never_return()


class Numbering(Computation):
    """Numbers the records of each key. What a record ``does``: it hangs, is slow, or sets a timer
    (that hangs). With ``dies``, what hangs ends its worker in that way."""

    seen = ValueState(int, default=0)

    def __init__(self, slow_us: int, dies: str = "") -> None:
        self._slow_us, self._dies = slow_us, dies

    def process_record(self, ctx: Any, record: Any) -> None:
        does = record.value["does"]
        self.seen.set(self.seen.get() + 1)
        ctx.produce(
            "numbered", {**record.value, "number": self.seen.get()}, timestamp=record.timestamp
        )
        if does == "hangs":
            _end(self._dies)
        elif does == "slow":
            take(self._slow_us)
        elif does.startswith("timer"):
            ctx.set_timer(
                f"{record.value['p']}/{record.value['n']}/{does}", record.timestamp + SECOND
            )

    def process_timer(self, ctx: Any, timer: Any) -> None:
        p, n, does = timer.tag.split("/")
        if does == "timer that hangs":
            _end(self._dies)
        ctx.produce("rung", {"p": int(p), "n": int(n)})


class NumberingTogether(Numbering):
    """The same with the records of a key together: some of them may be slow, and take too long
    together."""

    def process_batch(self, ctx: Any, records: Any) -> None:
        for record in records:
            self.process_record(ctx, record)


class Listing(Computation):
    """Says which records are in a window, unless one of them makes it hang."""

    def __init__(self, dies: str = "") -> None:
        self._dies = dies

    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        if any(record.value["does"] == "window that hangs" for record in records):
            _end(self._dies)
        ctx.produce(
            "listed",
            {
                "p": key,
                "start": window.start,
                "ns": sorted(record.value["n"] for record in records),
            },
        )


class Hanging(Workload):
    """Sources → a callback with records and timers that hang → windows that hang → sinks."""

    hangs = True
    timeout_us = _TIMEOUT_US
    slow_us = _TIMEOUT_US // 4
    how = ""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        numbering = random.Random(f"batches {seed}").choice([Numbering, NumberingTogether])
        self.code = {"sim:Numbering": numbering, "sim:Listing": Listing}
        self.given = Limits(callback_us=self.timeout_us, hangs=self.rng.choice([1, 1, 2]))
        self.keys = self.rng.choice([1, 5])
        self.rows = {"events": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 3))}}
        self._index("hangs", self.rng.randint(1, 2))
        self._index("timer that hangs", self.rng.randint(0, 1))
        self._index("window that hangs", self.rng.randint(0, 1))

    def _partition(self, number: int) -> list[Any]:
        rng, rows, time = self.rng, [], START_US
        weights = rng.choice([[8, 1, 1], [2, 7, 1]])
        for n in range(self.count(1, 60)):
            time += rng.randint(0, SECOND)
            does = rng.choices(["", "slow", "timer"], weights)[0]
            rows.append(
                {
                    "key": f"k{rng.randrange(self.keys)}",
                    "n": n,
                    "p": number,
                    "ts": time,
                    "does": does,
                }
            )
        return rows

    def _index(self, does: str, times: int) -> None:
        everything = self.all_rows("events")
        for row in self.rng.sample(everything, min(times, len(everything))):
            row["does"] = does

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "events"})
        stream = StreamSpec("events", source, timestamp="ts", max_delay_us=SECOND)
        numbering = computation_spec(
            "numbering",
            (InputSpec("events", by("key")),),
            ("numbered", "rung"),
            callback="sim:Numbering",
            options={"slow_us": self.slow_us, "dies": self.how},
            productions=self.productions,
        )
        listing = computation_spec(
            "listing",
            (InputSpec("numbered", by("p")),),
            ("listed",),
            callback="sim:Listing",
            options={"dies": self.how},
            window=WindowSpec("tumbling", {"size_us": _SIZE_US}),
        )
        sinks = tuple(
            SinkSpec(name, "memory") for name in ("numbered", "rung", "listed", "dead_letters")
        )
        return PipelineSpec(
            "sim", (stream,), (numbering, listing), sinks, "/nowhere", limits=self.given
        )

    def check(self) -> None:
        rows = self.all_rows("events")
        good = [row for row in rows if row["does"] not in ("hangs", LINE)]
        numbered = self.sinks.rows("numbered")
        equal("numbered", _indexes(numbered), _indexes(good))
        if self.productions is Productions.STRONG:
            per_key = Counter(row["key"] for row in good)
            numbers = Counter(
                (key, number + 1) for key, count in per_key.items() for number in range(count)
            )
            equal("numbers", Counter((row["key"], row["number"]) for row in numbered), numbers)
        equal(
            "rung",
            _indexes(self.sinks.rows("rung")),
            _indexes(row for row in rows if row["does"] == "timer"),
        )
        windows: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for row in good:
            windows[row["p"], row["ts"] - row["ts"] % _SIZE_US].append(row)
        stuck = {
            index
            for index, each in windows.items()
            if any(row["does"] == "window that hangs" for row in each)
        }
        said = {
            index: tuple(row["n"] for row in each)
            for index, each in windows.items()
            if index not in stuck
        }
        listed = Counter(
            (row["p"], row["start"], tuple(row["ns"])) for row in self.sinks.rows("listed")
        )
        equal("listed", listed, Counter((*index, ns) for index, ns in said.items()))
        self._check_letters(rows, len(stuck))

    def _check_letters(self, rows: list[Any], windows: int) -> None:
        what = Counter(row["does"] for row in rows)
        want = Counter(
            record=what["hangs"], timer=what["timer that hangs"], window=windows, line=what[LINE]
        )
        reasons = [letter["reason"] for letter in self.sinks.rows("dead_letters")]
        found = Counter(
            next((word for word in want if self._is_about(each, word)), each) for each in reasons
        )
        equal("dead_letters", found, +want)

    def _is_about(self, reason: str, what: str) -> bool:
        """Whether this is the reason of a letter about a record, timer or window that hung."""
        return f"on this {what} (callback" in reason


def _indexes(rows: Any) -> Counter[Any]:
    return Counter((row["p"], row["n"]) for row in rows)
