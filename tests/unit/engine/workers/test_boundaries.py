"""The boundary around user code: whatever a call hands over or raises is a dead letter of exactly
its record."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from millwheel import (
    Aggregator,
    Computation,
    InjectionSource,
    ListState,
    MapState,
    Pipeline,
    Retraction,
    Tumbling,
    ValueState,
    agg,
)
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.failures import MOST_WORDS, in_words
from millwheel.core.model.records import Domain
from millwheel.engine.workers.boundaries import FAILED, ColumnBoundary, passes
from millwheel.errors import CorruptionError, FencedError, InvariantError, RecordError
from millwheel.testing import PipelineHarness

HALF_AN_EMOJI = json.loads('"\\ud83d"')


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class NoTrace(Exception):
    __traceback__ = None  # type: ignore[assignment]


class PanicException(BaseException):
    """As pyo3 raises it."""


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("cannot be shown")


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


RAISED: dict[str, Callable[[], BaseException]] = {
    "half an emoji": lambda: ValueError(HALF_AN_EMOJI),
    "no text": NoText,
    "no trace": NoTrace,
    "out of memory": MemoryError,
    "too deep": RecursionError,
    "cancelled": asyncio.CancelledError,
    "exit": lambda: SystemExit(3),
    "generator": GeneratorExit,
    "iteration": StopIteration,
    "panic": lambda: PanicException("index out of bounds"),
    "huge": lambda: ValueError("x" * 10_000_000),
    "unshowable": lambda: KeyError(Unshowable()),
    "chained": lambda: ValueError(NoText()).with_traceback(None),
    "bytes": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
}
CALLS: dict[str, Callable[[Any, Any], object]] = {
    "tag 5": lambda self, ctx: ctx.set_timer(5, 10),
    "tag None": lambda self, ctx: ctx.set_timer(None, 10),
    "tag bytes": lambda self, ctx: ctx.set_timer(b"x", 10),
    "tag half an emoji": lambda self, ctx: ctx.set_timer(HALF_AN_EMOJI, 10),
    "tag of the system": lambda self, ctx: ctx.set_timer("\0ttl:one", 10),
    "tag too long": lambda self, ctx: ctx.set_timer("x" * 20_000, 10),
    "time 1.5": lambda self, ctx: ctx.set_timer("x", 1.5),
    "time None": lambda self, ctx: ctx.set_timer("x", None),
    "time True": lambda self, ctx: ctx.set_timer("x", True),
    "domain text": lambda self, ctx: ctx.set_timer("x", 10, "event"),
    "cancel 5": lambda self, ctx: ctx.cancel_timer(5),
    "cancel list": lambda self, ctx: ctx.cancel_timer([]),
    "cancel domain": lambda self, ctx: ctx.cancel_timer("x", None),
    "count 1.5": lambda self, ctx: ctx.count("n", 1.5),
    "count NaN": lambda self, ctx: ctx.count("n", math.nan),
    "count text": lambda self, ctx: ctx.count("n", "1"),
    "count None": lambda self, ctx: ctx.count("n", None),
    "count 2**64": lambda self, ctx: ctx.count("n", 2**64),
    "count -2**64": lambda self, ctx: ctx.count("n", -(2**64)),
    "count Decimal": lambda self, ctx: ctx.count("n", Decimal(1)),
    "counter 5": lambda self, ctx: ctx.count(5),
    "counter of the system": lambda self, ctx: ctx.count("late"),
    "counter too long": lambda self, ctx: ctx.count("x" * 1_000),
    "stream 5": lambda self, ctx: ctx.produce(5, {}),
    "stream list": lambda self, ctx: ctx.produce([], {}),
    "stream unknown": lambda self, ctx: ctx.produce("other", {}),
    "half an emoji": lambda self, ctx: ctx.produce("out", {"text": HALF_AN_EMOJI}),
    "half an emoji in a name": lambda self, ctx: ctx.produce("out", {HALF_AN_EMOJI: 1}),
    "2**64": lambda self, ctx: ctx.produce("out", {"n": 2**64}),
    "object": lambda self, ctx: ctx.produce("out", {"n": Unshowable()}),
    "numpy": lambda self, ctx: ctx.produce("out", {"n": np.int64(1)}),
    "cyclic": lambda self, ctx: ctx.produce("out", {"n": cyclic()}),
    "600 levels": lambda self, ctx: ctx.produce("out", {"n": deep(600)}),
    "key 1.5": lambda self, ctx: ctx.produce("out", {}, key=1.5),
    "key True": lambda self, ctx: ctx.produce("out", {}, key=True),
    "key half an emoji": lambda self, ctx: ctx.produce("out", {}, key=HALF_AN_EMOJI),
    "key 2**64": lambda self, ctx: ctx.produce("out", {}, key=2**64),
    "key dict": lambda self, ctx: ctx.produce("out", {}, key={}),
    "key of 900 levels": lambda self, ctx: ctx.produce("out", {}, key=deep(900)),
    "key too long": lambda self, ctx: ctx.produce("out", {}, key="x" * 20_000),
    "timestamp text": lambda self, ctx: ctx.produce("out", {}, timestamp="2026-01-01"),
    "timestamp before": lambda self, ctx: ctx.produce("out", {}, timestamp=-5),
    "retraction": lambda self, ctx: ctx.produce("out", Retraction({"n": 1})),
    "float for int": lambda self, ctx: self.one.set(2.5),
    "text for int": lambda self, ctx: self.one.set("2"),
    "True for int": lambda self, ctx: self.one.set(True),
    "None for int": lambda self, ctx: self.one.set(None),
    "2**64 for int": lambda self, ctx: self.one.set(2**64),
    "numpy for int": lambda self, ctx: self.one.set(np.int64(1)),
    "half an emoji for anything": lambda self, ctx: self.any.set(HALF_AN_EMOJI),
    "set for anything": lambda self, ctx: self.any.set({1}),
    "600 levels for anything": lambda self, ctx: self.any.set(deep(600)),
    "cyclic for anything": lambda self, ctx: self.any.set(cyclic()),
    "object for anything": lambda self, ctx: self.any.set(Unshowable()),
    "text in a list": lambda self, ctx: self.items.append("1"),
    "float in a map": lambda self, ctx: self.entries.__setitem__("a", 2.5),
    "key of a map 1": lambda self, ctx: self.entries.__setitem__(1, 1),
    "key of a map 1.5": lambda self, ctx: self.entries.get(1.5),
    "key of a map True": lambda self, ctx: self.loose.get(True),
    "key of a map NaN": lambda self, ctx: self.loose.get(math.nan),
    "key of a map list": lambda self, ctx: self.loose.get([[1.5]]),
    "changed in place": lambda self, ctx: self.listed.get().append("text"),
}


class Calls(Computation):
    one = ValueState(int, default=0)
    any = ValueState()
    items = ListState(int)
    entries = MapState(str, int)
    loose = MapState(int)
    listed = ValueState(list[int], default=list)

    def process_record(self, ctx: Any, record: Any) -> None:
        do = record.value["do"]
        ctx.produce("out", {"n": record.value["n"]})
        if do in RAISED:
            raise RAISED[do]()
        if do:
            CALLS[do](self, ctx)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", {"n": -1})


class Together(Calls):
    def process_batch(self, ctx: Any, records: Any) -> None:
        for record in records:
            ctx.produce("out", {"n": record.value["n"]}, timestamp=record.timestamp)
            if (do := record.value["do"]) in RAISED:
                raise RAISED[do]()
            if do:
                CALLS[do](self, ctx)


def poisoned(kind: type[Computation], do: list[str]) -> tuple[list[int], list[Any]]:
    """The records that are left, and the letters, where every third record does what it must
    not."""
    p = Pipeline("poisoned")
    p.read("s", InjectionSource(), timestamp="t").key_by("k").process(
        kind, output="out", name="calls", max_attempts=1
    )
    records = [
        {"t": i, "k": i % 3, "n": i, "do": do[i // 3] if i % 3 == 2 else ""}
        for i in range(3 * len(do))
    ]
    with PipelineHarness(p) as h:
        h.push("s", records)
        h.crash()
        letters = h.read("dead_letters")
        return [row["n"] for row in h.read("out") if row["n"] >= 0], letters


@pytest.mark.parametrize("kind", [Calls, Together])
@pytest.mark.parametrize("table", [RAISED, CALLS], ids=["raised", "calls"])
def test_what_a_call_raises_or_hands_over_is_a_dead_letter_of_exactly_its_record(
    kind: type[Computation], table: dict[str, Any]
) -> None:
    do = [each for each in table if not each.startswith("timestamp") or kind is Calls]
    left, letters = poisoned(kind, do)
    assert sorted(left) == [i for i in range(3 * len(do)) if i % 3 != 2]
    assert [letter["value"]["do"] for letter in letters] == do
    for letter in letters:
        assert letter["reason"]
        assert len(letter["reason"]) < MOST_WORDS + 500
        encode_value(letter)


def test_the_sentence_of_a_refused_call_says_what_to_do() -> None:
    _, letters = poisoned(
        Calls, ["set for anything", "count 1.5", "time 1.5", "text for int", "600 levels"]
    )
    told = [letter["reason"].partition("RecordError: ")[2] for letter in letters]
    assert told == [
        (
            "state 'any' has no declared type: set {1} would come back as list [1] after a crash;"
            " declare the type, set"
        ),
        (
            "count 'n': a counter counts in whole numbers, not by float 1.5; keep sums of other"
            " numbers in a ValueState"
        ),
        (
            "set_timer: a time is a whole number of µs since 1970, not float 1.5; round(seconds *"
            " 1_000_000) makes one"
        ),
        "state 'one' is declared as int: str '2' does not fit: Expected `int`, got `str`",
        "produce to 'out': the value cannot be sent: it nests more than 500 levels deep",
    ]


def test_what_says_that_the_worker_must_not_go_on_passes() -> None:
    for error in (CorruptionError("c"), FencedError("f"), InvariantError("i")):
        assert passes(error)
    for other in (
        SystemExit(1),
        MemoryError(),
        PanicException(),
        asyncio.CancelledError(),
        ValueError(),
    ):
        assert not passes(other)


def test_an_interrupt_is_the_users_where_signals_are_handled_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Python's own handler is in place, and makes one of a signal
    assert passes(KeyboardInterrupt())
    monkeypatch.setattr("signal.getsignal", lambda number: lambda *_: None)
    assert not passes(KeyboardInterrupt())


def test_the_words_of_an_exception_can_always_be_had() -> None:
    assert in_words(ValueError(HALF_AN_EMOJI)) == "ValueError: ?"
    assert in_words(NoText()) == "NoText: (its text cannot be made: RuntimeError)"
    assert len(in_words(ValueError("x" * 10**6))) < MOST_WORDS + 100


class Sums(Aggregator[Any]):
    def create(self) -> Any:
        return 0

    def add(self, acc: Any, value: Any, timestamp: int) -> Any:
        if value in RAISED:
            raise RAISED[value]()
        return {"set": {1}, "tuple": (1, 2), "Decimal": Decimal(1), "nested": [[{1}]]}.get(
            value, acc + 1
        )

    def merge(self, acc: Any, other: Any) -> Any:
        return acc + other

    def result(self, acc: Any) -> Any:
        return acc


def test_what_an_aggregator_raises_or_gives_is_a_dead_letter_of_exactly_its_record() -> None:
    bad = ["exit", "half an emoji", "panic", "set", "tuple", "Decimal", "nested"]
    p = Pipeline("own")
    windows = p.read("s", InjectionSource(), timestamp="t").key_by("k").window(Tumbling("1m"))
    windows.aggregate({"x": agg.own(Sums, "v")}, output="out", name="sums")
    with PipelineHarness(p) as h:
        h.push(
            "s",
            [{"t": i, "k": 0, "v": bad[i // 2] if i % 2 else "good"} for i in range(2 * len(bad))],
        )
        h.crash()
        h.finish()
        assert [row["x"] for row in h.read("out")] == [len(bad)]
        assert [letter["value"]["v"] for letter in h.read("dead_letters")] == bad


def _raise_for(value: Any) -> Any:
    if value["v"] in RAISED:
        raise RAISED[value["v"]]()
    return value


def key_of(value: Any) -> int:
    return 0 if _raise_for(value) else 1


def kept(value: Any) -> bool:
    return bool(_raise_for(value))


@pytest.mark.parametrize("form", ["map", "filter", "flat_map", "key"])
def test_what_a_function_raises_is_a_dead_letter_of_exactly_its_record(form: str) -> None:
    bad = [name for name in RAISED if name != "iteration" or form != "flat_map"]
    p = Pipeline("functions")
    read = p.read("s", InjectionSource(), timestamp="t")
    if form == "key":
        read.key_by(key_of).window(Tumbling("1m")).aggregate(
            {"v": agg.collect("v")}, output="out", name="c"
        )
    elif form == "map":
        read.map(_raise_for, output="out", max_attempts=1)
    elif form == "filter":
        read.filter(kept, output="out", max_attempts=1)
    else:
        read.flat_map(lambda value: [_raise_for(value)], output="out", max_attempts=1)
    with PipelineHarness(p) as h:
        h.push("s", [{"t": i, "v": bad[i // 2] if i % 2 else "good"} for i in range(2 * len(bad))])
        h.crash()
        h.finish()
        rows = h.read("out")
        found = rows[0]["v"] if form == "key" else [row["v"] for row in rows]
        assert found == ["good"] * len(bad)
        assert [letter["value"]["v"] for letter in h.read("dead_letters")] == bad


def test_counters_stop_before_they_do_not_fit_into_a_commit() -> None:
    class Counts(Computation):
        def process_record(self, ctx: Any, record: Any) -> None:
            ctx.count("much", 2**62)
            ctx.count("little", -(2**62))
            ctx.produce("out", {})

    p = Pipeline("counts")
    p.read("s", InjectionSource(), timestamp="t").key_by("k").process(
        Counts, output="out", name="c"
    )
    with PipelineHarness(p) as h:
        for i in range(5):
            h.push("s", {"t": i, "k": 0})
        h.crash()
        assert len(h.read("out")) == 5


def test_the_tag_of_an_enum_is_its_text_before_and_after_a_crash() -> None:
    import enum

    class Tag(str, enum.Enum):
        SOON = "soon"

    class Sets(Computation):
        def process_record(self, ctx: Any, record: Any) -> None:
            ctx.set_timer(Tag.SOON, record.timestamp, Domain.EVENT)

        def process_timer(self, ctx: Any, timer: Any) -> None:
            ctx.produce("out", {"tag": repr(timer.tag)})

    p = Pipeline("tags")
    p.read("s", InjectionSource(), timestamp="t").key_by("k").process(Sets, output="out", name="c")
    with PipelineHarness(p) as h:
        h.push("s", {"t": 1, "k": 0})
        h.finish()
        assert h.read("out") == [{"tag": "'soon'"}]


def test_each_kind_of_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    boundary = ColumnBoundary("minutes")
    counted: list[str] = []
    for _ in range(3):
        with pytest.raises(Inexact), boundary.inside(counted.append):
            raise RuntimeError("odd")
    assert (len(counted), [record.levelno for record in caplog.records]) == (3, [logging.WARNING])
    with pytest.raises(Inexact), boundary.inside(counted.append):
        raise RecordError("about a record")
    for fatal in (CorruptionError("damaged"), KeyboardInterrupt(), OSError("away")):
        with pytest.raises(type(fatal)), boundary.inside(counted.append):
            raise fatal
    assert (len(counted), len(caplog.records)) == (3, 1)


def test_numbers_that_do_not_fit_are_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    with pytest.raises(Inexact), ColumnBoundary("minutes").inside(counted.append):
        raise Inexact
    assert (counted, caplog.records) == ([], [])


def test_a_failure_is_counted_by_its_name_and_logged_with_its_node_and_where_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[str] = []
    with pytest.raises(Inexact) as raised, ColumnBoundary("minutes").inside(counted.append):
        raise ValueError("odd")
    [record] = caplog.records
    assert counted == [FAILED]
    assert (
        record.getMessage()
        == "minutes failed in columns, and goes on record by record: ValueError: odd"
    )
    assert record.exc_info is not None
    assert record.exc_info[1] is raised.value.__cause__


def test_messages_that_name_records_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    boundary = ColumnBoundary("minutes")
    counted: list[str] = []
    for record in range(50):
        with pytest.raises(Inexact), boundary.inside(counted.append):
            raise ValueError(f"record {record}")
    assert (len(counted), len(caplog.records)) == (50, 20)
