"""Input that is taken back leaves no trace: sums go down, sessions fall apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.windows.panes import Pane, Retraction, as_retraction
from millwheel.core.windows.triggers import AfterCount, AfterWatermark, Default
from millwheel.core.windows.windows import Sessions, Sliding, Tumbling, WindowFunction
from millwheel.testing import WindowHarness

quick = settings(deadline=None, max_examples=60)


def _standing(panes: list[Pane]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for pane in panes:
        index = pane.key, pane.window
        if pane.retraction:
            assert found.pop(index) == pane.result
        else:
            found[index] = pane.result
    return found


@quick
@given(
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=25),
    window=st.sampled_from([Sessions(7), Tumbling(10), Sliding(12, 4)]),
    function=st.sampled_from(["sum", "count", "max", "collect", "mean", "count_distinct", "top"]),
    trigger=st.sampled_from([Default(), AfterWatermark(early=AfterCount(1), late=AfterCount(1))]),
    moves=st.lists(st.integers(0, 10), min_size=25, max_size=25),
    bundle=st.integers(1, 4),
    stored=st.booleans(),
)
def test_what_stands_is_as_if_taken_back_records_had_never_come(
    events: list[tuple[int, int, bool]],
    window: WindowFunction,
    function: str,
    trigger: Any,
    moves: list[int],
    bundle: int,
    stored: bool,
) -> None:
    aggregate: Any = {"top": {"top_k": "", "k": 2}} if function == "top" else function
    settings: dict[str, Any] = {
        "aggregate": aggregate,
        "accumulation": "retracting",
        "allowed_lateness": 1000,
    }
    harness = WindowHarness(window, trigger, takes_retractions=True, stored=stored, **settings)
    alive: list[tuple[int, int]] = []
    inputs: list[tuple[str, Any, int]] = []
    for value, timestamp, back in events:
        if back and alive:
            gone = alive.pop(value % len(alive))
            inputs.append(("k", Retraction(gone[0]), gone[1]))
        else:
            alive.append((value, timestamp))
            inputs.append(("k", value, timestamp))
    for i in range(0, len(inputs), bundle):
        harness.push_bundle(inputs[i : i + bundle])
        harness.advance_watermark(max(0, harness.watermark) + moves[i])
    harness.advance_watermark(100_000)
    plain = WindowHarness(window, **settings)
    plain.push_bundle([("k", value, timestamp) for value, timestamp in alive])
    plain.advance_watermark(100_000)
    expected = _standing(plain.take())
    assert {k: _sorted(v) for k, v in _standing(harness.take()).items()} == {
        k: _sorted(v) for k, v in expected.items()
    }
    assert harness.state_of("k") == {}
    assert harness.rejected == []
    assert harness.timers("k") == []


def _sorted(result: Any) -> Any:
    return sorted(result) if isinstance(result, list) else result


def test_a_session_falls_apart_when_the_record_that_joined_it_is_taken_back() -> None:
    harness = WindowHarness(
        Sessions(10),
        accumulation="retracting",
        allowed_lateness=100,
        aggregate="sum",
        takes_retractions=True,
    )
    harness.push_bundle([("k", 1, 0), ("k", 2, 15), ("k", 4, 7)])
    harness.advance_watermark(50)
    assert [(tuple(pane.window), pane.result) for pane in harness.take()] == [((0, 25), 7)]
    harness.push("k", Retraction(4), 7)
    assert [(tuple(pane.window), pane.result, pane.retraction) for pane in harness.take()] == [
        ((0, 25), 7, True),
        ((0, 10), 1, False),
        ((15, 25), 2, False),
    ]


def test_a_window_whose_records_are_all_taken_back_only_retracts() -> None:
    harness = WindowHarness(
        Tumbling(10),
        accumulation="retracting",
        allowed_lateness=100,
        aggregate="sum",
        takes_retractions=True,
    )
    harness.push("k", 5, 3)
    harness.advance_watermark(20)
    harness.push("k", Retraction(5), 3)
    assert [(pane.result, pane.retraction) for pane in harness.take()] == [(5, False), (5, True)]


def test_discarding_sums_of_retracted_input_are_differences() -> None:
    harness = WindowHarness(
        Tumbling(10), AfterWatermark(early=AfterCount(1)), aggregate="sum", takes_retractions=True
    )
    harness.push("k", 5, 3)
    harness.push("k", Retraction(5), 3)
    assert [pane.result for pane in harness.take()] == [5, -5]


def test_a_retraction_of_what_a_session_does_not_hold_is_rejected() -> None:
    harness = WindowHarness(Sessions(10), accumulation="retracting", takes_retractions=True)
    harness.push("k", "a", 3)
    harness.push("k", Retraction("b"), 3)
    assert [(r.value, r.reason) for r in harness.rejected] == [
        (Retraction("b"), "a retraction of a record that its window does not hold")
    ]


def test_a_late_retraction_is_late() -> None:
    harness = WindowHarness(
        Tumbling(10), aggregate="sum", accumulation="retracting", takes_retractions=True
    )
    harness.push("k", 5, 3)
    harness.advance_watermark(20)
    harness.push("k", Retraction(5), 3)
    assert [as_retraction(late.value) for late in harness.late] == [Retraction(5)]


def test_a_chain_of_two_retracting_groupings_ends_right() -> None:
    """Sessions per user, then sessions over their starts: what the first takes back splits the
    second."""
    users = WindowHarness(
        Sessions(10), accumulation="retracting", allowed_lateness=1000, aggregate="sum"
    )
    totals = WindowHarness(
        Sessions(30),
        accumulation="retracting",
        allowed_lateness=1000,
        aggregate="sum",
        takes_retractions=True,
    )
    seen: list[Pane] = []

    def flow(watermark: int) -> None:
        users.advance_watermark(watermark)
        bundle = [
            ("all", Retraction(pane.result) if pane.retraction else pane.result, pane.timestamp)
            for pane in users.take()
        ]
        totals.push_bundle(bundle)
        totals.advance_watermark(watermark)
        seen.extend(totals.take())

    users.push_bundle([("ann", 1, 0), ("bob", 2, 30), ("ann", 4, 60), ("bob", 8, 200)])
    flow(300)
    users.push("ann", 16, 9)
    flow(310)
    users.push("bob", 32, 195)
    flow(2000)
    standing = _standing(seen)
    assert sum(standing.values()) == 1 + 2 + 4 + 8 + 16 + 32
