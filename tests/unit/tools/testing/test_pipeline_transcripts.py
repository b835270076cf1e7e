"""Runs tests/transcripts/pipelines/*.yaml: whole pipelines step by step, as data, through
PipelineHarness.

A document names computations, and lists steps; what every stream says after a step must be in the
``say`` that follows. Each runs in every form: as it is, with the types of its records declared, in
columns and in rows, and all of that with a crash after every step, which stores what is kept and
opens it again. ``pytest --rewrite`` puts in what did happen. The format is described in
tests/transcripts/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.testing import PipelineHarness
from tests.transcripts.documents import cases, files, rewrite
from tests.unit.engine.workers.operators.column_runs import in_rows

FOLDER = Path(__file__).parents[3] / "transcripts" / "pipelines"
CODE = (Path(__file__).parent / "transcript_code.py").read_text()

_FILES = files(FOLDER)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_rewrite(path: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """First in the file, so that the transcripts below run as they were rewritten."""
    if not request.config.getoption("--rewrite"):
        pytest.skip("only with --rewrite")
    rewrite(path, _FILES[path], 160, partial(_rewrite, folder=tmp_path))


@pytest.mark.parametrize("crashing", [False, True], ids=["calm", "crashing"])
@pytest.mark.parametrize("form", ["undeclared", "columns", "rows"])
@pytest.mark.parametrize("document", cases(_FILES))
def test_transcript(
    document: Any, form: str, crashing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form != "undeclared" and not any(_fields(document, name) for name in document["streams"]):
        pytest.skip("its records are not alike")
    few = partialmethod(ShardLimits.__init__, rows_below=0)
    monkeypatch.setattr(ShardLimits, "__init__", few)
    with in_rows(form == "rows"), _harness(document, tmp_path, form != "undeclared") as harness:
        said: dict[str, Any] = {}
        for number, step in enumerate(document["steps"]):
            [(action, given)] = step.items()
            where = f"step {number} ({action})"
            if action == "say":
                assert said == given, where
                said = {}
                continue
            assert not said, f"{where}: not expected before it: {said}"
            _ACTIONS[action](harness, given)
            if crashing:
                harness.crash()
            said = _said(harness, document)
        assert not said, f"not expected at the end: {said}"
        for name, expected in document.get("counters", {}).items():
            assert harness.counters.get(name, 0) == expected, name


def _rewrite(document: Any, folder: Path) -> None:
    steps = CommentedSeq()
    with _harness(document, folder) as harness:
        for step in document["steps"]:
            [(action, given)] = step.items()
            if action == "say":
                continue
            steps.append(step)
            _ACTIONS[action](harness, _plain(given))
            if said := _said(harness, document):
                steps.append(CommentedMap({"say": _block(said)}))
        for name in document.get("counters", {}):
            document["counters"][name] = harness.counters.get(name, 0)
    document["steps"] = steps


# --- the pipeline ---------------------------------------------------------------------------------


def _harness(document: Any, folder: Path, declared: bool = False) -> PipelineHarness:
    streams: dict[str, Any] = {
        name: {"source": "injection", "timestamp": {"field": "t", "unit": "us"}}
        for name in document["streams"]
    }
    for name, stream in streams.items() if declared else ():
        if fields := _fields(document, name):
            stream["fields"] = fields
    spec = {
        "pipeline": "transcript",
        "streams": streams,
        "computations": _plain(document["computations"]),
    }
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps(spec).replace('"code:', '"transcript_code:'))
    (folder / "transcript_code.py").write_text(CODE)
    return PipelineHarness(path)


def _fields(document: Any, stream: str) -> dict[str, str]:
    """The types of a stream's records, if all have the same fields of the same plain types."""
    pushed = [step["push"].get(stream, []) for step in document["steps"] if "push" in step]
    records = [each for some in pushed for each in (some if isinstance(some, list) else [some])]
    if not records or not all(isinstance(each, dict) for each in records):
        return {}
    types = {tuple((name, type(each[name])) for name in sorted(each)) for each in _plain(records)}
    names = {int: "int", float: "float", str: "str", bool: "bool"}
    [alike, *others] = types
    if others or not all(kind in names for _, kind in alike):
        return {}
    return {name: names[kind] for name, kind in alike}


def _said(harness: PipelineHarness, document: Any) -> dict[str, Any]:
    """What each stream said, those of sources left out. Records of different keys have no order."""
    found = {}
    for stream in [sink.stream for sink in harness.spec.sinks]:
        if stream in document["streams"]:
            continue
        values = harness.take(stream)
        if stream == "dead_letters":
            values = [f"{letter['computation']}: {letter['reason']}" for letter in values]
        if values:
            ordered = (
                values
                if document.get("ordered")
                else sorted(values, key=lambda value: json.dumps(value))
            )
            found[stream] = ordered
    return found


# --- steps ----------------------------------------------------------------------------------------


def _push(harness: PipelineHarness, given: Any) -> None:
    for stream, values in given.items():
        harness.push(stream, values)


def _watermark(harness: PipelineHarness, given: Any) -> None:
    for stream, at in given.items() if isinstance(given, dict) else [(None, given)]:
        harness.advance_watermark(at, stream)


def _crash(harness: PipelineHarness, given: Any) -> None:
    harness.crash()


_ACTIONS: dict[str, Callable[[PipelineHarness, Any], None]] = {
    "push": _push,
    "watermark": _watermark,
    "clock": lambda harness, given: harness.advance_processing_time(given),
    "crash": _crash,
    "finish": lambda harness, given: harness.finish(),
}


def _plain(given: Any) -> Any:
    """Without what ruamel.yaml remembers of the text."""
    return json.loads(json.dumps(given))


def _block(said: dict[str, Any]) -> CommentedMap:
    block = CommentedMap()
    for stream, values in said.items():
        block[stream] = CommentedSeq(_flow(value) for value in values)
    return block


def _flow(value: Any) -> Any:
    if not isinstance(value, (dict, list)):
        return value
    made: Any = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    made.fa.set_flow_style()
    return made
