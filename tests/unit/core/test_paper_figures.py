"""The worked example of the Dataflow paper (Akidau et al., VLDB 2015), figure 14, and its sum by a second grouping.

The figure itself, pane by pane, is in tests/transcripts/sessions.yaml.
"""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.triggers.combinations import AfterEach, OrFinally, Repeat
from millwheel.core.triggers.triggers import AfterCount, AfterProcessingTime, AfterWatermark, Default, Trigger
from millwheel.core.windows.panes import Pane, Retraction
from millwheel.core.windows.windows import Global, Sessions, Tumbling, WindowFunction
from millwheel.testing import WindowHarness

S = 1_000_000

PERIOD = AfterProcessingTime(align="1m")
SEQUENCE = AfterEach(OrFinally(Repeat(PERIOD), AfterWatermark()), Repeat(AfterWatermark()))
EARLY_AND_LATE = AfterWatermark(early=PERIOD, late=AfterCount(1))

STEPS: list[tuple[str, Any]] = [
    ("clock", 310),
    ("push", [(5, 30), (7, 130)]),
    ("clock", 360),
    ("clock", 380),
    ("push", [(3, 230), (4, 260), (3, 290)]),
    ("clock", 420),
    ("clock", 435),
    ("push", [(8, 180)]),
    ("watermark", 350),
    ("push", [(3, 390)]),
    ("clock", 480),
    ("clock", 500),
    ("push", [(9, 80)]),
    ("push", [(8, 430), (1, 470)]),
    ("watermark", 530),
]
"""Processing time, values at their event times, and the watermark, in seconds."""


def _play(harness: WindowHarness, action: str, given: Any) -> list[Pane]:
    if action == "push":
        harness.push_bundle([("user", value, at * S) for value, at in given])
    elif action == "clock":
        harness.advance_processing_time(given * S)
    else:
        harness.advance_watermark(given * S)
    return harness.take()


def _signed(panes: list[Pane]) -> list[int]:
    return [-pane.result if pane.retraction else pane.result for pane in panes]


@pytest.mark.parametrize("trigger", [SEQUENCE, EARLY_AND_LATE], ids=["sequence", "early-and-late"])
def test_figure_14(trigger: Trigger) -> None:
    harness = WindowHarness(Sessions("1m"), trigger, "retracting", allowed_lateness="1h", aggregate="sum")
    emitted = [(action, given, _signed(panes)) for action, given in STEPS if (panes := _play(harness, action, given))]
    assert emitted == [
        ("clock", 360, [5, 7]),
        ("clock", 420, [10]),
        ("watermark", 350, [-7, -10, 25]),
        ("clock", 480, [3]),
        ("push", [(9, 80)], [-5, -25, 39]),
        ("watermark", 530, [-3, 12]),
    ]


@pytest.mark.parametrize(
    ("window", "trigger"),
    [
        (Tumbling("1h"), Default()),
        (Tumbling("1h"), AfterWatermark(early=AfterCount(1), late=AfterCount(1))),
        (Global(), Repeat(AfterCount(1))),
        (Sessions("10m"), AfterWatermark(early=AfterCount(1), late=AfterCount(1))),
    ],
    ids=repr,
)
@pytest.mark.parametrize("accumulation", ["retracting", "accumulating"])
def test_a_second_grouping_ends_at_51(window: WindowFunction, trigger: Trigger, accumulation: str) -> None:
    """Whatever it said meanwhile: 39 + 12 stands at the end."""
    first = WindowHarness(Sessions("1m"), SEQUENCE, "retracting", allowed_lateness="1h", aggregate="sum")
    second = WindowHarness(
        window, trigger, accumulation, allowed_lateness="2h", aggregate="sum", takes_retractions=True
    )
    standing: dict[Any, int] = {}
    for action, given in [*STEPS, ("watermark", 100_000)]:
        rows = [
            ("all", Retraction(pane.result) if pane.retraction else pane.result, pane.timestamp)
            for pane in _play(first, action, given)
        ]
        second.push_bundle(rows)
        second.advance_watermark(first.watermark)
        for pane in second.take():
            if pane.retraction:
                assert standing.pop(pane.window) == pane.result
            elif accumulation == "retracting":
                standing[pane.window] = pane.result
            else:
                standing = {pane.window: pane.result}
    assert sum(standing.values()) == 51
    assert second.late == second.rejected == []


def test_a_second_grouping_that_discards_adds_up_to_51() -> None:
    first = WindowHarness(Sessions("1m"), SEQUENCE, "retracting", allowed_lateness="1h", aggregate="sum")
    second = WindowHarness(Global(), Repeat(AfterCount(1)), aggregate="sum", takes_retractions=True)
    total = 0
    for action, given in STEPS:
        for pane in _play(first, action, given):
            second.push("all", Retraction(pane.result) if pane.retraction else pane.result, pane.timestamp)
        total += sum(pane.result for pane in second.take())
    assert total == 51
