"""The harness shows every step of a windowed grouping."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

import millwheel.tools.testing.window_harness as module
from millwheel import AfterAll, AfterAny, AfterEach, Default, Repeat, Sliding
from millwheel.core.aggregates.base import Aggregator
from millwheel.core.model.records import Domain
from millwheel.core.windows.triggers import (
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
)
from millwheel.core.windows.windows import Sessions, Tumbling
from millwheel.testing import WindowHarness


def test_the_example_of_its_documentation() -> None:
    harness = WindowHarness(window=Sessions("10s"), trigger=AfterWatermark(early=AfterCount(2)))
    harness.push_bundle([("ann", 1, 1_000_000), ("ann", 2, 4_000_000)])
    [pane] = harness.take()
    assert (pane.values, pane.timing) == ([1, 2], "early")
    assert doctest.testmod(module).failed == 0


def test_a_bundle_asks_the_trigger_once_and_single_records_each_time() -> None:
    together = WindowHarness(Tumbling(10), AfterWatermark(early=AfterCount(2)))
    together.push_bundle([("k", i, i) for i in range(5)])
    assert [pane.values for pane in together.take()] == [[0, 1, 2, 3, 4]]
    apart = WindowHarness(Tumbling(10), AfterWatermark(early=AfterCount(2)))
    for i in range(5):
        apart.push("k", i, i)
    assert [pane.values for pane in apart.take()] == [[0, 1], [2, 3]]


def test_take_gives_each_pane_once() -> None:
    harness = WindowHarness(Tumbling(10))
    harness.push("k", 1, 1)
    harness.advance_watermark(10)
    assert len(harness.take()) == 1
    assert harness.take() == []


@pytest.mark.parametrize(
    ("aggregate", "result"),
    [
        (None, [3, 4]),
        ("sum", 7),
        ("count", 2),
        ({"total": {"sum": ""}, "best": {"top_k": "", "k": 1}}, {"total": 7, "best": [4]}),
    ],
)
def test_values_may_be_aggregated(aggregate: Any, result: Any) -> None:
    harness = WindowHarness(Tumbling(10), aggregate=aggregate)
    harness.push_bundle([("k", 3, 1), ("k", 4, 2)])
    harness.advance_watermark(10)
    [pane] = harness.take()
    assert pane.result == result == pane.values


def test_named_aggregates_read_fields() -> None:
    harness = WindowHarness(Tumbling(10), aggregate={"hits": "count", "bytes": {"sum": "size"}})
    harness.push_bundle([("k", {"size": 3}, 1), ("k", {"size": 4}, 2), ("k", {}, 3)])
    harness.advance_watermark(10)
    assert [pane.result for pane in harness.take()] == [{"hits": 2, "bytes": 7}]
    assert [rejected.timestamp for rejected in harness.rejected] == [3]


def test_an_aggregator_of_ones_own() -> None:
    class Product(Aggregator[int]):
        def create(self) -> int:
            return 1

        def add(self, acc: int, value: Any, timestamp: int) -> int:
            return acc * int(value)

        def merge(self, acc: int, other: int) -> int:
            return acc * other

    harness = WindowHarness(Sessions(10), aggregate=Product())
    harness.push_bundle([("k", 3, 0), ("k", 5, 12), ("k", 7, 6)])
    harness.advance_watermark(100)
    assert [pane.result for pane in harness.take()] == [105]


def test_none_is_a_value_like_others() -> None:
    harness = WindowHarness(Tumbling(10))
    harness.push_bundle([("k", None, 1), ("k", 0, 2)])
    harness.advance_watermark(10)
    assert [pane.values for pane in harness.take()] == [[None, 0]]
    counting = WindowHarness(Tumbling(10), aggregate="count")
    counting.push("k", None, 1)
    counting.advance_watermark(10)
    assert [pane.result for pane in counting.take()] == [1]


def test_watermark_and_clock_never_go_back() -> None:
    harness = WindowHarness(Tumbling(10))
    harness.advance_watermark(5)
    harness.advance_watermark(5)
    with pytest.raises(ValueError, match="never goes back"):
        harness.advance_watermark(4)
    harness.advance_processing_time(7)
    with pytest.raises(ValueError, match="cannot go back"):
        harness.advance_processing_time(6)


def test_timers_and_state_can_be_seen() -> None:
    harness = WindowHarness(
        Tumbling(10), AfterWatermark(early=AfterProcessingTime(5)), allowed_lateness="1ms"
    )
    harness.push("k", 1, 1)
    assert harness.timers("k") == [(Domain.PROCESSING, "0,10", 4), (Domain.EVENT, "0,10", 9)]
    assert list(harness.state_of("k")) == [(0, 10)]
    harness.advance_watermark(10)
    assert harness.timers("k") == [(Domain.EVENT, "0,10", 1009)]
    harness.advance_watermark(1010)
    assert harness.timers("k") == []
    assert harness.state_of("k") == {}


def test_a_percentile_watermark_follows_a_growing_session() -> None:
    harness = WindowHarness(Sessions(10), AfterWatermark(early=AfterPercentileWatermark(0.9)))
    harness.push("k", 1, 0)
    harness.push("k", 2, 8)
    harness.advance_watermark(12, share=0.9)
    assert harness.take() == []
    harness.advance_watermark(18, share=0.9)
    assert [pane.values for pane in harness.take()] == [[1, 2]]


def test_a_key_that_is_none_is_refused_as_the_runtime_does() -> None:
    from millwheel.errors import RecordError

    with pytest.raises(RecordError, match="missing key"):
        WindowHarness(Tumbling(10)).push(None, 1, 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: WindowHarness("10s"), "'10s' is not a window; write for example Tumbling"),
        (lambda: WindowHarness(Tumbling), "is not a window"),
        (lambda: WindowHarness(Tumbling(10), AfterCount), "is not a trigger; write for example"),
        (
            lambda: WindowHarness(Tumbling(10), accumulation="discard"),
            "one of discarding, accumulating, retracting",
        ),
        (
            lambda: WindowHarness(Tumbling(10), output_time="eow"),
            "one of end_of_window, earliest, latest",
        ),
        (lambda: WindowHarness(Tumbling(10), aggregate=5), "aggregate=5: give a function name"),
        (lambda: AfterWatermark(early=2), "early is a trigger, not 2"),
        (
            lambda: WindowHarness(Tumbling(10)).push("k", 1, 2**63 - 1),
            "outside the times that can be counted",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_write(wrong: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrong()


@pytest.mark.parametrize("time", [1.5, "10s", None, True])
def test_times_are_whole_numbers(time: Any) -> None:
    harness = WindowHarness(Tumbling(10))
    for call in (
        harness.advance_watermark,
        harness.advance_processing_time,
        lambda t: harness.push("k", 1, t),
    ):
        with pytest.raises(TypeError, match="whole number of µs"):
            call(time)


def test_a_suite_from_outside_finds_the_names_that_it_was_promised() -> None:
    windows = [Tumbling("10s"), Sliding("10s", "5s"), Sessions("10s"), Sessions(10)]
    triggers = [
        Default(), AfterWatermark(early=AfterCount(2), late=AfterCount(3)), Repeat(AfterCount(2)),
        AfterAny(AfterCount(1), AfterProcessingTime("1s")), AfterAll(AfterCount(1), AfterCount(2)),
        AfterEach(AfterCount(1), AfterCount(2)), Repeat(AfterAny(AfterCount(2))),
    ]  # fmt: skip
    for window in windows:
        for trigger in triggers:
            for accumulation in ("discarding", "accumulating", "retracting"):
                for output_time in ("end_of_window", "earliest", "latest"):
                    harness = WindowHarness(
                        window=window,
                        trigger=trigger,
                        accumulation=accumulation,
                        allowed_lateness="1m",
                        output_time=output_time,
                        aggregate=None,
                    )
                    harness.push(key="k", value=1, timestamp=0)
                    harness.push_bundle([("k", 2, 1), ("k", 3, 2)])
                    harness.advance_watermark(100_000_000)
                    harness.advance_processing_time(1_000_000)
                    assert isinstance(harness.open_windows("k"), list)
                    for pane in harness.take():
                        assert pane.values == pane.result
                        assert pane.window.start <= pane.timestamp < pane.window.end
                        assert pane.timing in ("early", "on_time", "late")
                        assert (pane.index, pane.is_first) >= (0, False)
                        assert pane.nonspeculative_index >= -1
                        assert {pane.is_last, pane.retraction} <= {True, False}
                        assert pane.key == "k"
