"""Windows with a callback, through the real runtime: what it gets, keeps and sends, and what
becomes of failures."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.windows.windows import Window
from millwheel.testing import PipelineHarness, assert_survives_crashes

S = 1_000_000
Make = Callable[..., PipelineHarness]

CODE = """
    import msgspec
    from millwheel import Aggregator, Computation, Domain, ValueState

    class Order(msgspec.Struct):
        who: str
        worth: int
        ts: int

    class Baskets(Computation):
        windows = ValueState(int, default=0)

        def __init__(self, unlucky=None):
            self.unlucky = unlucky

        def process_window(self, ctx, key, window, records):
            self.windows.set(self.windows.get() + 1)
            worths = [record.value["worth"] for record in records]
            ctx.produce("baskets", {
                "who": key, "start": window.start, "worths": worths,
                  "times": [r.timestamp for r in records],
                "number": self.windows.get(), "timing": ctx.pane.timing.value,
                  "last": ctx.pane.is_last,
            })
            for record in records:
                record.value["worth"] = 0
            if self.unlucky in worths:
                raise ValueError("an unlucky basket")
            ctx.set_timer(f"{window.start},{window.end}", window.end + 30_000_000)
            ctx.set_timer("clock", ctx.now + 1_000_000, Domain.PROCESSING)

        def process_timer(self, ctx, timer):
            ctx.produce("rung", {"who": ctx.key, "tag": timer.tag, "at": timer.at,
              "pane": ctx.pane})

    class Typed(Computation):
        def process_window(self, ctx, key, window, records):
            ctx.produce("baskets", {"who": key, "got": [
                (record.stream, record.value.worth if record.stream == "typed" else
                  record.value["worth"])
                for record in records
            ]})

    class Forgetful(Computation):
        seen = ValueState(int, default=0, ttl="90s")

        def process_window(self, ctx, key, window, records):
            self.seen.set(self.seen.get() + len(records))
            ctx.produce("baskets", {"who": key, "seen": self.seen.get()})

    class Range(Aggregator):
        def __init__(self, scale=1):
            self.scale = scale

        def check(self, value, name):
            return float(value)

        def create(self):
            return []

        def add(self, acc, value, timestamp):
            return [min(acc[0], value), max(acc[1], value)] if acc else [value, value]

        def merge(self, acc, other):
            return self.add(self.add(acc, other[0], 0), other[1], 0) if other else acc

        def result(self, acc):
            return (acc[1] - acc[0]) * self.scale if acc else None
"""
PIPELINE = """
    pipeline: shop
    streams:
      orders: {{source: {{injection: {{}}}}, timestamp: ts}}
      typed: {{source: {{files: {{path: none, format: jsonl}}}}, timestamp: ts,
        schema: "baskets:Order"}}
    computations:
      sums:
        {computation}
"""
MINUTES = """input: {orders: {key: who}}
        window: {tumbling: 1m}
        callback: baskets:Baskets
        output: [baskets, rung]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(computation: str) -> Path:
        (tmp_path / "baskets.py").write_text(textwrap.dedent(CODE))
        file = tmp_path / "pipeline.yaml"
        file.write_text(textwrap.dedent(PIPELINE.format(computation=computation)))
        return file

    return write


@pytest.fixture
def make(write: Callable[[str], Path]) -> Any:
    made: list[PipelineHarness] = []

    def make(computation: str, **options: Any) -> PipelineHarness:
        made.append(PipelineHarness(write(computation), **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def order(worth: int, at: int, who: str = "ann") -> dict[str, Any]:
    return {"who": who, "worth": worth, "ts": at * S}


def test_a_window_hands_over_its_records_once_it_is_complete_and_state_is_per_key(
    make: Make,
) -> None:
    harness = make(MINUTES)
    harness.push("orders", [order(5, 10), order(7, 3), order(9, 70), order(1, 20, "bob")])
    assert harness.read("baskets") == []
    assert harness.open_windows("sums", "ann") == [Window(0, 60 * S), Window(60 * S, 120 * S)]
    harness.advance_watermark(200 * S)
    mine = [row for row in harness.read("baskets") if row["who"] == "ann"]
    assert [(row["worths"], row["times"], row["number"], row["timing"]) for row in mine] == [
        ([5, 7], [10 * S, 3 * S], 1, "on_time"),
        ([9], [70 * S], 2, "on_time"),
    ]
    assert [record.timestamp for record in harness.records("baskets") if record.key == "ann"] == [
        60 * S - 1,
        120 * S - 1,
    ]
    assert harness.state("sums", "ann") == {"windows": 2}
    assert harness.open_windows("sums", "ann") == []


def test_timers_of_the_callback_lie_beside_those_of_its_windows(make: Make) -> None:
    harness = make(MINUTES)
    harness.push("orders", order(5, 10))
    harness.advance_watermark(60 * S)
    assert harness.read("rung") == []
    assert [tag for _, tag, _ in harness.timers("sums", "ann")] == ["clock", f"0,{60 * S}"]
    harness.advance_processing_time(2 * S)
    harness.advance_watermark(91 * S)
    assert [(row["tag"], row["pane"]) for row in harness.read("rung")] == [
        ("clock", None),
        (f"0,{60 * S}", None),
    ]


@pytest.mark.parametrize(
    ("accumulation", "expected"),
    [
        ("discarding", [[1, 2], [3], [4]]),
        ("accumulating", [[1, 2], [1, 2, 3], [1, 2, 3, 4]]),
    ],
)
def test_a_pane_has_what_is_new_or_all_whatever_the_callback_did_to_its_records(
    make: Make, accumulation: str, expected: list[list[int]]
) -> None:
    harness = make(
        MINUTES
        + "        trigger: {after_watermark: {early: {after_count: 2}, late: {after_count: 1}}}\n"
        f"        accumulation: {accumulation}\n        allowed_lateness: 1m\n"
    )
    harness.push("orders", [order(1, 1), order(2, 2)])
    harness.crash()
    harness.push("orders", order(3, 3))
    harness.advance_watermark(61 * S)
    harness.push("orders", order(4, 4))
    rows = harness.read("baskets")
    assert [row["worths"] for row in rows] == expected
    assert [row["timing"] for row in rows] == ["early", "on_time", "late"]


def test_a_window_that_fails_is_tried_again_and_becomes_a_dead_letter_with_its_records(
    make: Make,
) -> None:
    harness = make(MINUTES + "        options: {unlucky: 13}\n        max_attempts: 2\n")
    harness.push("orders", [order(13, 1), order(5, 2), order(4, 1, "bob"), order(6, 70)])
    harness.advance_watermark(500 * S)
    assert sorted(
        (row["who"], row["worths"], row["number"]) for row in harness.read("baskets")
    ) == [
        ("ann", [6], 1),
        ("bob", [4], 1),
    ]
    [letter] = harness.read("dead_letters")
    assert letter["reason"] == (
        "baskets:Baskets failed 2 times on this window: ValueError: an unlucky basket"
    )
    assert letter["attempts"] == 2
    assert letter["value"]["records"] == [
        [{"who": "ann", "worth": 13, "ts": S}, S],
        [{"who": "ann", "worth": 5, "ts": 2 * S}, 2 * S],
    ]
    assert (letter["value"]["window_start"], letter["value"]["window_end"]) == (0, 60 * S)
    assert letter["state"] == {"windows": None}
    assert "baskets.py:" in letter["location"]
    assert sorted(row["who"] for row in harness.read("rung") if "," in row["tag"]) == ["ann", "bob"]


def test_where_leaves_records_out_and_what_it_cannot_judge_is_a_dead_letter_as_it_came(
    make: Make,
) -> None:
    harness = make(MINUTES + "        where: worth > 3\n")
    harness.push("orders", [order(5, 1), order(2, 2), {"who": "ann", "worth": "much", "ts": 0}])
    harness.advance_watermark(60 * S)
    assert [row["worths"] for row in harness.read("baskets")] == [[5]]
    [letter] = harness.read("dead_letters")
    assert letter["value"] == {"who": "ann", "worth": "much", "ts": 0}


def test_late_records_leave_as_they_came(make: Make) -> None:
    harness = make(MINUTES + "        late: side:behind\n")
    harness.push("orders", [order(5, 1)])
    harness.advance_watermark(60 * S)
    harness.push("orders", order(6, 2))
    assert harness.read("behind") == [order(6, 2)]
    assert harness.counters["late"] == 1


@pytest.mark.parametrize("crash", [False, True])
def test_records_are_typed_and_say_which_stream_they_came_by(make: Make, crash: bool) -> None:
    harness = make(
        """input: {typed: {key: who}, orders: {key: who}}
        window: {session: 10s}
        callback: baskets:Typed
        output: baskets
"""
    )
    harness.push("typed", order(1, 0))
    harness.push("orders", order(2, 5))
    if crash:
        harness.crash()
    harness.push("typed", order(3, 12))
    harness.finish()
    assert harness.read("baskets") == [
        {"who": "ann", "got": [["typed", 1], ["orders", 2], ["typed", 3]]}
    ]


def test_retractions_take_their_records_out(make: Make) -> None:
    harness = make(
        """input: {orders: {key: who}}
        window: {tumbling: 10s}
        aggregate: {worth: {sum: worth}}
        trigger: {after_watermark: {early: {after_count: 1}}}
        accumulation: retracting
        output: sums
      minutes:
        input: {sums: {key: who}}
        window: {tumbling: 1m}
        callback: baskets:Baskets
        output: [baskets, rung]
"""
    )
    harness.push("orders", order(5, 1))
    harness.push("orders", order(7, 2))
    harness.push("orders", order(1, 12))
    harness.advance_watermark(60 * S)
    assert [row["worths"] for row in harness.read("baskets")] == [[12, 1]]


def test_state_with_a_time_to_live_expires(make: Make) -> None:
    harness = make(MINUTES.replace("Baskets", "Forgetful"))
    harness.push("orders", [order(1, 1), order(1, 59)])
    harness.push("orders", [order(1, 61)])
    harness.push("orders", [order(1, 301)])
    harness.advance_watermark(360 * S)
    assert [row["seen"] for row in harness.read("baskets")] == [2, 3, 1]
    harness.advance_watermark(1000 * S)
    assert harness.state("sums", "ann") == {"seen": 0}
    assert harness.timers("sums", "ann") == []


def test_a_crash_at_any_place_changes_nothing(write: Callable[[str], Path]) -> None:
    file = write(
        MINUTES
        + "        options: {unlucky: 13}\n        max_attempts: 1\n        productions: weak\n"
    )

    def story(harness: PipelineHarness) -> None:
        harness.push("orders", [order(1, 1), order(13, 61), order(3, 62)])
        harness.advance_watermark(90 * S)
        harness.push("orders", [order(4, 130), order(5, 131, "bob")])
        harness.advance_watermark(500 * S)

    assert assert_survives_crashes(file, story, every=10) > 3


def test_an_aggregator_of_the_users_own_is_named_in_yaml(make: Make) -> None:
    harness = make(
        """input: {orders: {key: who}}
        window: {tumbling: 1m}
        aggregate:
          plain: {"baskets:Range": worth}
          scaled: {"baskets:Range": worth * 2, scale: 10, where: worth > 1}
        output: baskets
"""
    )
    harness.push(
        "orders", [order(1, 1), order(5, 2), order(8, 3), {"who": "ann", "worth": "x", "ts": 4}]
    )
    harness.crash()
    harness.advance_watermark(60 * S)
    [row] = harness.read("baskets")
    assert (row["plain"], row["scaled"]) == (7, 60)
    [letter] = harness.read("dead_letters")
    assert letter["value"] == {"who": "ann", "worth": "x", "ts": 4}
