"""Dead letters that are tried again: each once, by who failed on it, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.replays import ReplayOrder, Request
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    InputSpec,
    PipelineSpec,
    Productions,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine.workers.events import ReplayDone, ReplayOrdered
from millwheel.engine.workers.threads.aside import ReplayThread
from millwheel.testing import PipelineHarness
from tests.computations import computation_spec

SECOND = 1_000_000


class Counting(Computation):
    """Counts per user; cannot do what ``broken`` says."""

    broken: Any = staticmethod(lambda value: False)
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        if type(self).broken(record.value):
            raise TypeError("broken")
        ctx.produce("out", {"user": record.key, "n": record.value["n"], "at": record.timestamp})


class Other(Computation):
    """Another consumer, which never fails."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("others", record.value["n"])


@pytest.fixture(autouse=True)
def mended() -> Iterator[None]:
    yield
    break_on(lambda value: False)


def break_on(broken: Any) -> None:
    Counting.broken = staticmethod(broken)


def by(field: str) -> KeySpec:
    return KeySpec(KeyKind.FIELD, (field,))


def spec(**fields: Any) -> PipelineSpec:
    counting = computation_spec(
        "counting",
        (InputSpec("hits", by("user")),),
        ("out",),
        callback=f"{__name__}:Counting",
        **fields,
    )
    other = computation_spec(
        "other", (InputSpec("hits", by("n")),), ("others",), callback=f"{__name__}:Other"
    )
    stream = StreamSpec("hits", SourceSpec("generator", {}), timestamp="at")
    return PipelineSpec("p", (stream,), (counting, other), (), ".")


def hits(count: int) -> list[dict[str, Any]]:
    return [
        {"user": f"u{n % 7}", "at": n * 1_000, "n": n, "data": b"\x00\xff", "deep": {3: n}}
        for n in range(count)
    ]


def numbers(harness: PipelineHarness) -> list[int]:
    return sorted(row["n"] for row in harness.read("out"))


@pytest.mark.parametrize("productions", Productions)
@pytest.mark.parametrize("crash_every", [None, 5, 23, 61])
def test_each_letter_is_tried_again_once_with_its_key_and_time(
    productions: Productions, crash_every: int | None
) -> None:
    break_on(lambda value: value["n"] % 3 == 0)
    with PipelineHarness(spec(productions=productions), crash_every=crash_every) as harness:
        harness.push("hits", hits(60))
        assert len(harness.read(DEAD_LETTERS)) == 20
        break_on(lambda value: False)
        assert harness.replay() == 20
        assert harness.replay() == 0
        assert "replayed.harness0" not in harness.counters
        harness.push(
            "hits", [{**hit, "n": hit["n"] + 60, "at": hit["at"] + 60_000} for hit in hits(10)]
        )
        harness.crash()
        assert numbers(harness) == list(range(70))
        assert {
            (row["n"], row["user"], row["at"]) for row in harness.read("out") if row["n"] < 60
        } == {(hit["n"], hit["user"], hit["at"]) for hit in hits(60)}
        assert sorted(harness.read("others")) == list(range(70))
        assert sum(harness.state("counting", f"u{n}")["seen"] for n in range(7)) == 70


@pytest.mark.parametrize("crash_every", [None, 19])
def test_what_fails_again_is_a_new_letter_with_its_history(crash_every: int | None) -> None:
    break_on(lambda value: value["n"] in (3, 4))
    with PipelineHarness(spec(), crash_every=crash_every) as harness:
        harness.push("hits", hits(10))
        break_on(lambda value: value["n"] == 4)
        assert harness.replay() == 2
        assert numbers(harness) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert harness.replay() == 1
        letters = harness.read(DEAD_LETTERS)
        assert [len(letter["history"]) for letter in letters] == [0, 0, 1, 2]
        assert letters[-1]["value"]["n"] == 4
        assert [past["attempts"] for past in letters[-1]["history"]] == [3, 3]
        assert all("TypeError" in past["reason"] for past in letters[-1]["history"])
        break_on(lambda value: False)
        assert harness.replay() == 1
        assert numbers(harness) == list(range(10))


def test_values_that_json_cannot_carry_come_back_as_they_were() -> None:
    break_on(
        lambda value: (
            not isinstance(value["data"], bytes)
            or value["deep"] != {3: value["n"]}
            or value["n"] == 1
        )
    )
    with PipelineHarness(spec()) as harness:
        harness.push("hits", hits(3))
        assert numbers(harness) == [0, 2]
        break_on(
            lambda value: not isinstance(value["data"], bytes) or value["deep"] != {3: value["n"]}
        )
        harness.replay()
        assert numbers(harness) == [0, 1, 2]


def test_after_the_end_replayed_records_still_count_once() -> None:
    break_on(lambda value: value["n"] == 5)
    with PipelineHarness(spec()) as harness:
        harness.push("hits", hits(10))
        harness.finish()
        break_on(lambda value: False)
        harness.replay()
        # those who have ended take nothing in this run
        assert numbers(harness) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        harness.crash()
        assert numbers(harness) == list(range(10))


@pytest.mark.parametrize("passed", [False, True])
def test_a_window_behind_it_counts_what_is_tried_again_unless_it_has_closed(passed: bool) -> None:
    given = spec()
    sums = computation_spec(
        "sums",
        (InputSpec("out", by("user")),),
        ("sums",),
        window=WindowSpec("tumbling", {"size_us": 10 * SECOND}),
        aggregates=(AggregateSpec("hits", "count"),),
        late="side:late",
    )
    break_on(lambda value: value["n"] == 3)
    with PipelineHarness(replace(given, computations=(*given.computations, sums))) as harness:
        harness.push("hits", hits(10))
        if passed:
            harness.advance_watermark(20 * SECOND)
        break_on(lambda value: False)
        harness.replay()
        harness.advance_watermark(20 * SECOND)
        assert sum(row["hits"] for row in harness.read("sums")) == (9 if passed else 10)
        assert len(harness.read("late")) == passed
        assert harness.watermark("sums") == 20 * SECOND


def test_a_bad_value_of_an_aggregate_is_tried_again() -> None:
    sums = computation_spec(
        "sums",
        (InputSpec("hits", by("user")),),
        ("out",),
        window=WindowSpec("tumbling", {"size_us": 10 * SECOND}),
        aggregates=(AggregateSpec("sum", "sum", "n"),),
    )
    stream = StreamSpec("hits", SourceSpec("generator", {}), timestamp="at")
    with PipelineHarness(PipelineSpec("p", (stream,), (sums,), (), ".")) as harness:
        harness.push(
            "hits",
            [{"user": "ann", "at": SECOND, "n": 1}, {"user": "ann", "at": 2 * SECOND, "n": "x"}],
        )
        assert harness.replay() == 1
        first, second = harness.read(DEAD_LETTERS)
        assert (second["key"], second["value"], second["timestamp"]) == (
            first["key"],
            first["value"],
            2 * SECOND,
        )
        assert len(second["history"]) == 1


def test_a_worker_hears_of_an_order_once_and_of_its_end(tmp_path: Path) -> None:
    orders, heard = ReplayOrders(open_space(str(tmp_path))), Queue[Any]()
    ReplayThread(orders, 0.01, heard.put)
    orders.request(1, Request("a", []))
    orders.bind(1, ReplayOrder("a", []))
    assert heard.get(timeout=10) == ReplayOrdered(ReplayOrder("a", []), at_start=False)
    orders.finish(1)
    assert heard.get(timeout=10) == ReplayDone("a")
    orders.bind(2, ReplayOrder("b", []))
    assert heard.get(timeout=10) == ReplayOrdered(ReplayOrder("b", []), at_start=False)
    assert heard.empty()
