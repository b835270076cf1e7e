"""Runs tests/transcripts/*.yaml: when triggers fire and what windows emit, step by step, as data.

A document names a windowing and lists steps. After each step, everything that was emitted must be
in the ``expect`` that follows; without one, nothing may have been said. ``pytest --rewrite`` puts
in what did happen. Documents with ``fails`` must fail with that text, ones with ``refused`` must
not even start. The format is described in tests/transcripts/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.model.times import duration_us
from millwheel.core.pipeline.work import WindowSpec
from millwheel.core.windows.panes import Pane, Retraction, Timing
from millwheel.core.windows.trees import trigger_from_tree
from millwheel.testing import WindowHarness
from tests.transcripts.adapter import run
from tests.transcripts.documents import cases, files, rewrite

FOLDER = Path(__file__).parents[2] / "transcripts"

_FILES = files(FOLDER)
CASES = cases(_FILES)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_rewrite(path: Path, request: pytest.FixtureRequest) -> None:
    """First in the file, so that the transcripts below run as they were rewritten."""
    if not request.config.getoption("--rewrite"):
        pytest.skip("only with --rewrite")
    rewrite(path, _FILES[path], 120, _rewrite)


@pytest.mark.parametrize("stored", [False, True], ids=["live", "stored"])
@pytest.mark.parametrize("document", CASES)
def test_transcript(document: Any, stored: bool) -> None:
    if "refused" in document:
        with pytest.raises(ValueError, match=document["refused"]):
            _harness(document, stored)
    elif "fails" in document:
        with pytest.raises(AssertionError, match=document["fails"]):
            _run(document, stored)
    else:
        _run(document, stored)


def _run(document: Any, stored: bool) -> None:
    harness = _harness(document, stored)
    emitted: list[Any] | None = None
    for number, step in enumerate(document["steps"]):
        [(action, given)] = step.items()
        where = f"step {number} ({action})"
        if action == "expect":
            assert emitted is not None, f"{where}: two expectations in a row"
            _compare(emitted, given, where)
            emitted = None
        elif action in _LOOKS:
            assert _LOOKS[action](harness) == given, where
        else:
            assert not emitted, f"{where}: not expected before it: {emitted}"
            _ACTIONS[action](harness, given)
            emitted = [_written(pane, document) for pane in harness.take()]
    assert not emitted, f"not expected at the end: {emitted}"


def _compare(emitted: list[Any], expected: list[Any], where: str) -> None:
    for pane in expected:
        assert pane in emitted, f"{where}: missing {pane}; emitted was {emitted}"
    for pane in emitted:
        assert pane in expected, f"{where}: not expected {pane}"
    assert emitted == expected, f"{where}: wrong order; emitted was {emitted}"


def _rewrite(document: Any) -> None:
    if "fails" in document or "refused" in document:
        return
    harness = _harness(plain_of(document), False)
    steps = CommentedSeq()
    for step in document["steps"]:
        [(action, given)] = step.items()
        if action == "expect":
            continue
        steps.append(step)
        if action in _LOOKS:
            step[action] = _flow(_LOOKS[action](harness))
            continue
        _ACTIONS[action](harness, plain_of(given))
        emitted = harness.take()
        if emitted:
            panes = CommentedSeq(_flow(_written(pane, document)) for pane in emitted)
            steps.append(CommentedMap({"expect": panes}))
    document["steps"] = steps


# --- steps ----------------------------------------------------------------------------------------


def _push(harness: WindowHarness, given: Any) -> None:
    harness.push_bundle([record_of(item) for item in given])


def _retract(harness: WindowHarness, given: Any) -> None:
    harness.push_bundle([(key, Retraction(value), at) for key, value, at in map(record_of, given)])


def record_of(item: Any) -> tuple[Any, Any, int]:
    """``7`` is value 7 at 7, ``[5, 7]`` value 5 at 7, ``[ann, 5, 7]`` has a key, too."""
    if not isinstance(item, list):
        return "k", item, time_of(item)
    key, value, at = item if len(item) == 3 else ("k", *item)
    return key, value, time_of(at)


def time_of(given: Any) -> int:
    return duration_us(given)


def _percentile(harness: WindowHarness, given: Any) -> None:
    for share, at in given.items():
        harness.advance_watermark(time_of(at), float(share))


_ACTIONS: dict[str, Any] = {
    "push": _push,
    "retract": _retract,
    "watermark": lambda harness, given: harness.advance_watermark(time_of(given)),
    "clock": lambda harness, given: harness.advance_processing_time(time_of(given)),
    "percentile": _percentile,
}
_LOOKS: dict[str, Any] = {
    "open": lambda harness: [list(window) for window in harness.open_windows("k")],
    "closed": lambda harness: [list(window) for window in harness.closed_windows("k")],
    "late": lambda harness: [late.value for late in harness.late],
    "rejected": lambda harness: [rejected.reason for rejected in harness.rejected],
    "hold": lambda harness: harness.hold,
    "slots": lambda harness: len(harness.state_of("k")),
}


# --- documents ------------------------------------------------------------------------------------


def _harness(document: Any, stored: bool) -> WindowHarness:
    settings = {
        name: document[name]
        for name in ("accumulation", "allowed_lateness", "output_time", "late", "takes_retractions")
        if name in document
    }
    return WindowHarness(
        window_from_spec(window_spec(document["window"])),
        trigger_from_tree(document.get("trigger")),
        aggregate=document.get("aggregate"),
        stored=stored,
        **settings,
    )


_DURATIONS = {"offset": "offset_us", "every": "every_us"}


def window_spec(given: Any) -> WindowSpec:
    """The window that a document names."""
    settings = {given: None} if isinstance(given, str) else dict(given)
    kind, size = next(iter(settings.items()))
    options: dict[str, Any] = {
        "session": {"gap_us": size},
        "global": {},
        "count": {"count": size},
    }.get(kind, {"size_us": size})
    for name, value in list(settings.items())[1:]:
        options[_DURATIONS.get(name, name)] = value
    if options.pop("emit", "every") == "changes":
        options["changes"] = True
    return WindowSpec(kind, options)


def _written(pane: Pane, document: Any) -> dict[str, Any]:
    """A pane with only what is not obvious."""
    written: dict[str, Any] = {} if pane.key == "k" else {"key": pane.key}
    written["window"] = list(pane.window)
    if pane.window.end > 2**62:
        written["window"] = "global"
    written["values" if document.get("aggregate") is None else "result"] = pane.result
    if pane.retraction:
        written["retraction"] = True
    if pane.timestamp != pane.window.max_timestamp:
        written["at"] = pane.timestamp
    written["timing"] = pane.timing.value
    if pane.index:
        written["index"] = pane.index
    if (
        pane.nonspeculative_index
        != {Timing.EARLY: -1, Timing.ON_TIME: 0, Timing.LATE: 1}[pane.timing]
    ):
        written["nonspeculative"] = pane.nonspeculative_index
    if pane.is_last:
        written["last"] = True
    assert pane.is_first == (pane.index == 0)
    return written


def plain_of(node: Any) -> Any:
    """Without what ruamel.yaml remembers of the text."""
    if isinstance(node, dict):
        return {
            str(name) if isinstance(name, str) else name: plain_of(value)
            for name, value in node.items()
        }
    if isinstance(node, list):
        return [plain_of(item) for item in node]
    return int(node) if isinstance(node, int) and not isinstance(node, bool) else node


def _flow(value: Any) -> Any:
    if isinstance(value, dict):
        node = CommentedMap((name, _flow(item)) for name, item in value.items())
    elif isinstance(value, list):
        node = CommentedSeq(_flow(item) for item in value)
    else:
        return value
    node.fa.set_flow_style()
    return node


def test_the_transcripts_are_found() -> None:
    assert len(CASES) > 40


# conformance.py: Runs tests/transcripts/conformance: what the Dataflow model says of windows and
# triggers, told in Beam's manner.

_CASES = cases(files(FOLDER / "conformance"))


@pytest.mark.parametrize("document", _CASES)
def test_conformance(document: Any) -> None:
    if "error" not in document:
        run(document)
        return
    with pytest.raises(AssertionError, match=document["error"]):
        run(document)


def test_the_transcripts_of_conformance_are_found() -> None:
    assert len(_CASES) > 60
