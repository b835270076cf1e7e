"""Event-time timers among the records of callbacks. From one partition, records and timers of a key
come in one order, also behind a callback by another key; the oracle goes through the partition by
itself. From several, each timer still comes behind all records of its time."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millwheel.api import Computation, MapState, ValueState
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_MAX_DELAY = 2 * SECOND
_SPAN = 5 * SECOND
_PAST = 4 * SECOND


class Reminding(Computation):
    """Counts; a record moves a timer, sets one for its past, or clears; a timer tells the count."""

    items = ValueState(int, default=0)

    def __init__(self, told: str, passed_on: str = "") -> None:
        self.told = told
        self.passed_on = passed_on

    def process_record(self, ctx: Any, record: Any) -> None:
        value = record.value
        if value["do"] == "fail":
            raise ValueError("a poison record")
        if value["do"] == "clear":
            self.items.clear()
            ctx.cancel_timer("remind", Domain.EVENT)
        else:
            self.items.set(self.items.get() + 1)
            ctx.set_timer(
                "past" if value["do"] == "past" else "remind",
                record.timestamp + value["after"],
                Domain.EVENT,
            )
        if self.passed_on:
            ctx.produce(self.passed_on, {**value, "kind": "record"})

    def process_timer(self, ctx: Any, timer: Any) -> None:
        at = _told_at(timer.tag, timer.at)
        row = {"key": ctx.key, "tag": timer.tag, "at": timer.at, "items": self.items.get()}
        ctx.produce(self.told, row, timestamp=at)
        if self.passed_on:
            row = {
                "u": ctx.key,
                "g": f"{ctx.key}'",
                "h": 0,
                "n": -1,
                "do": "move",
                "after": SECOND,
                "kind": "timer",
            }
            ctx.produce(self.passed_on, row, timestamp=at)


def _told_at(tag: str, at: int) -> int:
    """What a timer of the past tells is not behind the record that set it, nor behind the
    watermark."""
    return at + _PAST if tag == "past" else at


class Tallying(Computation):
    """How many records there are in each span of time, told behind its end."""

    spans = MapState(int)

    def __init__(self, told: str) -> None:
        self.told = told

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.value.get("kind", "record") != "record" or record.value["do"] == "fail":
            return
        span = record.timestamp // _SPAN
        self.spans[span] = self.spans.get(span, 0) + 1
        ctx.set_timer(str(span), (span + 1) * _SPAN - 1, Domain.EVENT)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        span = int(timer.tag)
        ctx.produce(self.told, {"key": ctx.key, "span": span, "count": self.spans[span]})
        del self.spans[span]


@dataclass(slots=True)
class _Key:
    """A key of a :class:`Reminding` as the oracle sees it: timers with the label of the call that
    set them."""

    items: int = 0
    timers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def due(self, label: int | None) -> Iterator[tuple[str, int, int]]:
        """(tag, time, label) of the timers before a label, in their order (None: of all)."""
        while self.timers:
            at, tag = min((at, tag) for tag, (at, _) in self.timers.items())
            if label is not None and at >= label:
                return
            yield tag, at, max(self.timers.pop(tag))

    def take(self, value: dict[str, Any], at: int, label: int) -> None:
        if value["do"] == "clear":
            self.items = 0
            self.timers.pop("remind", None)
            return
        self.items += 1
        due = at + value["after"]
        self.timers["past" if value["do"] == "past" else "remind"] = (
            due,
            label if due < label else due,
        )


class Placed(Workload):
    """See the module."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Reminding": Reminding, "sim:Tallying": Tallying}
        own = random.Random(f"placed {seed}")
        self.users = own.choice([1, 3, 8])
        self.steps = own.choice([0.05, 0.3, 1.0])
        partitions = 1 if own.random() < 0.75 else own.randint(2, 3)
        self.rows = {"events": {f"p{i}": self._partition(own, i) for i in range(partitions)}}

    def _partition(self, rng: random.Random, number: int) -> list[Any]:
        rows: list[Any] = []
        time_us = START_US
        for n in range(self.count(1, 120)):
            time_us += (
                rng.randint(0, int(SECOND * self.steps))
                if rng.random() < 0.9
                else rng.randint(0, 20 * SECOND)
            )
            user = f"u{rng.randrange(self.users)}"
            do = (
                rng.choice(["move"] * 7 + ["past"] * 2 + ["clear"] * 2)
                if rng.random() < 0.98
                else "fail"
            )
            after = (
                -rng.randint(0, _PAST) if do == "past" else rng.randint(SECOND // 10, 4 * SECOND)
            )
            stamp = time_us - rng.choice([0, 0, rng.randint(0, 3 * SECOND)])
            named = {"u": user, "g": f"{user}'", "h": n % 3, "n": n, "p": number}
            rows.append({**named, "do": do, "after": after, "ts": stamp})
        return rows

    def spec(self) -> PipelineSpec:
        stream = StreamSpec(
            "events", SourceSpec("memory", {"stream": "events"}), "ts", max_delay_us=_MAX_DELAY
        )
        given = [
            (
                "a",
                "events",
                "u",
                "Reminding",
                {"told": "reminders", "passed_on": "seen"},
                ("reminders", "seen"),
            ),
            ("b", "seen", "g", "Reminding", {"told": "said"}, ("said",)),
            ("c", "events", "u", "Tallying", {"told": "counted"}, ("counted",)),
            ("d", "seen", "h", "Tallying", {"told": "tallied"}, ("tallied",)),
        ]
        computations = tuple(
            computation_spec(
                name,
                (InputSpec(source, by(key)),),
                outputs,
                callback=f"sim:{kind}",
                options=options,
                max_attempts=2,
            )
            for name, source, key, kind, options, outputs in given
        )
        sinks = tuple(
            SinkSpec(name, "memory") for name in ("reminders", "said", "counted", "tallied")
        )
        return PipelineSpec("sim", (stream,), computations, sinks, "/nowhere")

    def check(self) -> None:
        self._check_tallies()
        if len(self.rows["events"]) > 1:
            return
        told, passed_on = reminded(taken(self.rows["events"]["p0"]), "u")
        equal("reminders", _of(self.sinks.rows("reminders")), told)
        equal("said", _of(self.sinks.rows("said")), reminded(passed_on, "g")[0])

    def _check_tallies(self) -> None:
        rows = [row for partition in self.rows["events"].values() for row, _, _ in taken(partition)]
        for sink, key in (("counted", "u"), ("tallied", "h")):
            want = Counter((row[key], row["ts"] // _SPAN) for row in rows if row["do"] != "fail")
            found = Counter(
                (row["key"], row["span"], row["count"]) for row in self.sinks.rows(sink)
            )
            equal(sink, found, Counter((*index, count) for index, count in want.items()))


def taken(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int, int]]:
    """The rows of a partition that are not late, each with its timestamp and its label."""
    highest, found = 0, []
    for row in rows:
        if row["ts"] + _MAX_DELAY >= highest:
            highest = max(highest, row["ts"])
            found.append((row, row["ts"], highest - _MAX_DELAY))
    return found


def _of(rows: Any) -> Counter[Any]:
    return Counter((row["key"], row["tag"], row["at"], row["items"]) for row in rows)


def reminded(
    records: list[tuple[dict[str, Any], int, int]], by: str
) -> tuple[Counter[Any], list[tuple[dict[str, Any], int, int]]]:
    """What the timers of the keys tell, and what goes on to the next computation."""
    keys: defaultdict[str, _Key] = defaultdict(_Key)
    told: Counter[Any] = Counter()
    passed_on: list[tuple[dict[str, Any], int, int]] = []

    def fire(key: str, label: int | None) -> None:
        for tag, at, own in keys[key].due(label):
            told[key, tag, at, keys[key].items] += 1
            passed_on.append(
                ({"g": f"{key}'", "do": "move", "after": SECOND}, _told_at(tag, at), own)
            )

    for value, at, label in records:
        key = value[by]
        fire(key, label)
        if value["do"] != "fail":
            keys[key].take(value, at, label)
            passed_on.append((value, at, label))
    for key in keys:
        fire(key, None)
    return told, passed_on
