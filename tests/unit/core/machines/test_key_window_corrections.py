"""Late records change steps that a key has emitted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.windows.panes import Pane
from millwheel.core.windows.windows import Sliding
from millwheel.testing import WindowHarness
from tests.unit.core.machines.test_key_windows import (
    Rows,
    _harness,
    _step_function,
    functions,
    quick,
    rows,
    shapes,
)


def _standing(panes: list[Pane]) -> dict[int, Any]:
    """The last thing emitted at each point, after retractions."""
    found: dict[int, Any] = {}
    for pane in panes:
        if pane.retraction:
            assert found.pop(pane.window.end) == pane.result
        else:
            found[pane.window.end] = pane.result
    return found


@quick
@given(
    records=rows,
    shape=shapes,
    function=functions,
    accumulation=st.sampled_from(["accumulating", "retracting"]),
    moves=st.lists(st.integers(0, 30), min_size=25, max_size=25),
    stored=st.booleans(),
)
def test_late_records_correct_the_steps_that_were_said(
    records: Rows,
    shape: tuple[int, int, int],
    function: str,
    accumulation: str,
    moves: list[int],
    stored: bool,
) -> None:
    harness = _harness(
        shape, function, accumulation=accumulation, allowed_lateness=1000, stored=stored
    )
    harness.advance_watermark(-60)
    for (timestamp, value), move in zip(records, moves, strict=False):
        harness.push("k", value, timestamp)
        harness.advance_watermark(min(200, harness.watermark + move))
    harness.advance_watermark(10_000)
    standing = _standing(harness.take())
    expected = dict(_step_function(records, shape, function))
    if accumulation == "retracting":
        assert standing == expected
    else:  # a step that is none any more cannot be taken back, but it says what holds there
        assert _as_function(standing) == _as_function(expected)
    assert harness.state_of("k") == {}


def _as_function(steps: dict[int, Any]) -> list[tuple[int, Any]]:
    """Without steps that change nothing."""
    found: list[tuple[int, Any]] = []
    for point, result in sorted(steps.items()):
        if (found and found[-1][1] != result) or (not found and result not in (0, None)):
            found.append((point, result))
    return found


@quick
@given(
    records=rows,
    shape=shapes,
    function=st.sampled_from(["count", "sum", "max"]),
    lateness=st.integers(0, 30),
    moves=st.lists(st.integers(0, 30), min_size=25, max_size=25),
)
def test_under_any_lateness_what_stands_is_what_native_windows_say(
    records: Rows, shape: tuple[int, int, int], function: str, lateness: int, moves: list[int]
) -> None:
    """Native windows under the same events, the last pane of each, equal neighbours removed."""
    settings: dict[str, Any] = {
        "allowed_lateness": lateness,
        "accumulation": "accumulating",
        "aggregate": function,
    }
    size, every, offset = shape
    native = WindowHarness(Sliding(size, every, offset), **settings)
    changes = WindowHarness(Sliding(size, every, offset, changes=True), **settings)
    for harness in (native, changes):
        harness.advance_watermark(-60)
        for (timestamp, value), move in zip(records, moves, strict=False):
            harness.push("k", value, timestamp)
            harness.advance_watermark(min(200, harness.watermark + move))
        harness.advance_watermark(10_000)
    assert len(changes.late) == len(native.late)
    emitted = _standing(native.take())
    nothing = 0 if function != "max" else None
    filled = {end + shift: nothing for end in emitted for shift in (-every, every)} | emitted
    assert _as_function(_standing(changes.take())) == _as_function(filled)


def test_what_is_final_stays_the_ground_that_later_steps_stand_on() -> None:
    """The step at 1 can change no more when the late record comes; it is neither repeated nor
    forgotten."""
    harness = WindowHarness(
        Sliding(20, 1, changes=True),
        aggregate="count",
        accumulation="retracting",
        allowed_lateness=5,
    )
    harness.push("k", "a", 0)
    harness.advance_watermark(15)
    harness.push("k", "b", 12)
    assert [(pane.window.end, pane.result) for pane in harness.take()] == [(1, 1), (13, 2)]
    harness.advance_watermark(100)
    assert [(pane.window.end, pane.result) for pane in harness.take()] == [(21, 1), (33, 0)]
