"""The worked example of the Dataflow paper (Akidau et al., VLDB 2015), figure 14, and its sum by a
second grouping.

The figure itself, pane by pane, is in tests/transcripts/sessions.yaml.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.times import MAX_TIME, duration_us
from millwheel.core.windows.combinations import AfterEach, OrFinally, Repeat
from millwheel.core.windows.panes import Pane, Retraction
from millwheel.core.windows.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Trigger,
)
from millwheel.core.windows.windows import Global, Sessions, Tumbling, WindowFunction
from millwheel.testing import PipelineHarness, WindowHarness
from tests.transcripts.documents import files

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
    harness = WindowHarness(
        Sessions("1m"), trigger, "retracting", allowed_lateness="1h", aggregate="sum"
    )
    emitted = [
        (action, given, _signed(panes))
        for action, given in STEPS
        if (panes := _play(harness, action, given))
    ]
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
def test_a_second_grouping_ends_at_51(
    window: WindowFunction, trigger: Trigger, accumulation: str
) -> None:
    """Whatever it said meanwhile: 39 + 12 stands at the end."""
    first = WindowHarness(
        Sessions("1m"), SEQUENCE, "retracting", allowed_lateness="1h", aggregate="sum"
    )
    second = WindowHarness(
        window,
        trigger,
        accumulation,
        allowed_lateness="2h",
        aggregate="sum",
        takes_retractions=True,
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
    first = WindowHarness(
        Sessions("1m"), SEQUENCE, "retracting", allowed_lateness="1h", aggregate="sum"
    )
    second = WindowHarness(Global(), Repeat(AfterCount(1)), aggregate="sum", takes_retractions=True)
    total = 0
    for action, given in STEPS:
        for pane in _play(first, action, given):
            second.push(
                "all", Retraction(pane.result) if pane.retraction else pane.result, pane.timestamp
            )
        total += sum(pane.result for pane in second.take())
    assert total == 51


# --- figures 6 to 13 ------------------------------------------------------------------------------

PRINTED = {
    6: [51],
    7: [12, 22, 33, 51],
    8: [12, 10, 11, 18],
    9: [12, 7, 11, 12, 9],
    10: [14, 22, 3, 12],
    11: [5, 7, 14, 3, 22, 3, 14, 12],
    12: [5, 22, 14, 3, 12],
    13: [5, 7, 14, 3, 5, 22, 3, 14, 3, 12],
}
"""The sums in the order in which they are emitted: of windows at one moment, the earlier first."""
_FOLDER = Path(__file__).parents[2] / "transcripts"
FIGURES = {
    int(document["name"].split()[1].rstrip(",")): document
    for document in files(_FOLDER)[_FOLDER / "dataflow_paper.yaml"]
}


@pytest.mark.parametrize("figure", PRINTED)
def test_a_transcript_has_the_sums_that_the_paper_prints(figure: int) -> None:
    panes = [pane for step in FIGURES[figure]["steps"] for pane in step.get("expect", ())]
    assert [pane["result"] for pane in panes] == PRINTED[figure]


@pytest.mark.parametrize("form", ["rows", "declared"])
@pytest.mark.parametrize("figure", PRINTED)
def test_a_pipeline_emits_them_too_and_crashes_all_the_time(
    figure: int, form: str, tmp_path: Path
) -> None:
    document = FIGURES[figure]
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(_pipeline(document, declared=form == "declared")))
    sums: list[int] = []
    with PipelineHarness(path, shards=1, workers=1) as harness:
        for step in document["steps"]:
            [(action, given)] = step.items()
            if action == "expect":
                continue
            _act(harness, action, given)
            rows = sorted(harness.take("sums"), key=lambda row: row["window_start"])
            sums += [row["n"] for row in rows]
            harness.crash()
    assert sums == PRINTED[figure]


def _pipeline(document: Any, declared: bool) -> Any:
    stream: dict[str, Any] = {"source": "injection", "timestamp": {"field": "t", "unit": "us"}}
    if declared:
        stream["fields"] = {"k": "str", "n": "int", "t": "int"}
    names = ("window", "trigger", "accumulation", "allowed_lateness")
    sums = {name: document[name] for name in names if name in document}
    sums |= {"input": {"values": {"key": "k"}}, "aggregate": {"n": {"sum": "n"}}, "output": "sums"}
    return {"pipeline": "figure", "streams": {"values": stream}, "computations": {"total": sums}}


def _act(harness: PipelineHarness, action: str, given: Any) -> None:
    if action == "push":
        values = [{"k": "user", "n": value, "t": duration_us(at)} for value, at in given]
        harness.push("values", values)
    elif action == "clock":
        harness.advance_processing_time(duration_us(given))
    elif duration_us(given) == MAX_TIME:
        harness.finish()
    else:
        harness.advance_watermark(duration_us(given))
