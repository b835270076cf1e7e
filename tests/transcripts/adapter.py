"""Drives WindowHarness by transcripts in the style of Apache Beam's own: a window function, a
trigger, and what goes in and comes out. What they say is independent of this project's words; the
adapter only translates.

A step is ``input`` (elements, which are their own timestamps), ``watermark``, ``clock``, ``state``
or ``expect``. An ``expect`` holds every output of the step before it, in any order, each described
by as much as matters. Windows are written with their last instant, ``[0, 9]``. Without
``allowed_lateness`` no window is ever collected.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from millwheel import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Global,
    OrFinally,
    Pane,
    Repeat,
    Retraction,
    Sessions,
    Sliding,
    Tumbling,
    Window,
)
from millwheel.testing import WindowHarness

KEY = "k"
_NEVER_COLLECTED = 10**15
_NAMES: dict[str, Callable[..., Any]] = {
    "FixedWindows": Tumbling,
    "SlidingWindows": Sliding,
    "Sessions": Sessions,
    "GlobalWindows": Global,
    "Default": Default,
    "DefaultTrigger": Default,
    "AfterWatermark": AfterWatermark,
    "AfterCount": AfterCount,
    "AfterProcessingTime": AfterProcessingTime,
    "Repeatedly": Repeat,
    "AfterAny": AfterAny,
    "AfterAll": AfterAll,
    "AfterEach": AfterEach,
    "OrFinally": OrFinally,
}
_COMBINERS = {
    "OUTPUT_AT_EOW": "end_of_window",
    "OUTPUT_AT_EARLIEST": "earliest",
    "OUTPUT_AT_LATEST": "latest",
}
_STATES = {"present": "open_windows", "tombstone": "closed_windows"}


def run(document: Any) -> None:
    """Run one transcript. AssertionError says which step differs, and how."""
    harness = harness_of(document)
    emitted: list[Pane] = []
    for number, step in enumerate(document["transcript"]):
        [(action, given)] = step.items()
        where = f"step {number} ({action})"
        if action == "expect":
            _match(emitted, given, where)
            emitted = []
            continue
        if action == "state":
            _look(harness, given, where)
            continue
        assert not emitted, (
            f"Unexpected output before {where}: {[described(pane) for pane in emitted]}"
        )
        _ACTIONS[action](harness, given)
        emitted = harness.take()
    assert not emitted, f"Unexpected output at the end: {[described(pane) for pane in emitted]}"


def harness_of(document: Any) -> WindowHarness:
    """The harness that a transcript speaks of."""
    return WindowHarness(
        window=_made(document["window_fn"]),
        trigger=_made(document.get("trigger_fn", "Default")),
        accumulation=document.get("accumulation_mode", "accumulating"),
        allowed_lateness=document.get("allowed_lateness", _NEVER_COLLECTED),
        output_time=_COMBINERS[document.get("timestamp_combiner", "OUTPUT_AT_EOW")],
        takes_retractions=any("retract" in step for step in document["transcript"]),
    )


def described(pane: Pane) -> dict[str, Any]:
    """A pane in the words of a transcript."""
    return {
        "window": _window(pane.window),
        "values": sorted(pane.values),
        "timestamp": pane.timestamp,
        "early": pane.timing == "early",
        "late": pane.timing == "late",
        "index": pane.index,
        "nonspeculative_index": pane.nonspeculative_index,
        "first": pane.is_first,
        "final": pane.is_last,
        "retraction": pane.retraction,
    }


def _window(window: Window) -> Any:
    return "global" if window.end > 2**62 else [window.start, window.end - 1]


def _match(emitted: list[Pane], expected: list[Any], where: str) -> None:
    left = [described(pane) for pane in emitted]
    for wanted in expected:
        found = next(
            (pane for pane in left if all(pane[name] == value for name, value in wanted.items())),
            None,
        )
        assert found is not None, f"Unmatched output at {where}: {dict(wanted)} is not among {left}"
        left.remove(found)
    assert not left, f"Unexpected output at {where}: {left}"


def _look(harness: WindowHarness, given: Any, where: str) -> None:
    for state, method in _STATES.items():
        if state in given:
            windows = [_window(window) for window in getattr(harness, method)(KEY)]
            assert windows == list(given[state]), f"{where}: {state} are {windows}"
    known = [
        _window(window) for window in [*harness.open_windows(KEY), *harness.closed_windows(KEY)]
    ]
    for window in given.get("absent", []):
        assert window not in known, f"{where}: {window} is still known"


_ACTIONS: dict[str, Callable[[WindowHarness, Any], None]] = {
    "input": lambda harness, given: harness.push_bundle([(KEY, at, at) for at in given]),
    "retract": lambda harness, given: harness.push_bundle(
        [(KEY, Retraction(at), at) for at in given]
    ),
    "watermark": lambda harness, given: harness.advance_watermark(given),
    "clock": lambda harness, given: harness.advance_processing_time(given),
}


def _made(text: str) -> Any:
    """The window or trigger that an expression such as ``AfterWatermark(early=AfterCount(2))``
    names."""
    return _value(ast.parse(text, mode="eval").body)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _NAMES[node.id]()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        named = {word.arg: _value(word.value) for word in node.keywords if word.arg}
        return _NAMES[node.func.id](*map(_value, node.args), **named)
    raise ValueError(f"{ast.unparse(node)} is neither a name, nor a call, nor a number")
