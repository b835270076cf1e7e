"""The reference says what the transcripts and the examples of the docs say, which were written
before it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.expressions.language import compile_expression
from millwheel.language.spec import load_pipeline
from tests.search.generate import windows as drawn
from tests.search.reference import Reference
from tests.search.reference.expressions import CALCULATIONS, CONDITIONS, evaluated
from tests.search.reference.one_window import ReferenceWindow
from tests.search.script import Action, Case, Clock, Finish, Push, Watermark
from tests.search.variants import REFERENCE, examine
from tests.transcripts import adapter
from tests.transcripts.documents import cases, files
from tests.unit.core import test_transcripts as windows

HOUSE = Path(__file__).parents[2]
TRANSCRIPTS = HOUSE / "tests" / "transcripts"
CODE = (HOUSE / "tests" / "unit" / "tools" / "testing" / "transcript_code.py").read_text()


# --- expressions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*CALCULATIONS, *CONDITIONS])
def test_an_expression_means_to_the_product_what_it_means_to_the_reference(text: str) -> None:
    product, reference = compile_expression(text).evaluate, evaluated(text)
    for n in range(-400, 400):
        found, expected = product({"n": n}), reference({"n": n})
        assert (type(found), found) == (type(expected), expected), n


# --- whole pipelines ------------------------------------------------------------------------------


SUMS = """\
pipeline: p
streams:
  hits:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    fields: {at: int, k: str, n: int}
computations:
  c:
    input: {hits: {key: k}}
    window: {tumbling: 10s}
    aggregate: {all: {sum: "%s"}, none: {sum: "%s", where: n > 100}}
    output: c
sinks: {c: {stdout: {}}}
"""


@pytest.mark.parametrize("text", [*drawn.CALCULATIONS, *CALCULATIONS, "floor(n / 4) + len(str(n))"])
def test_a_sum_is_a_float_to_the_product_where_it_is_one_to_the_reference(text: str) -> None:
    values = tuple({"at": 1_000_000_000 + n, "k": "a", "n": n} for n in range(3, 7))
    case = Case(1, SUMS % (text, text), (Push("hits", values), Finish(None)))
    assert not examine(case, [REFERENCE])


ASKED = """\
pipeline: p
streams: {hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}}
computations:
  c: {input: hits, enrich: {lookup: {redis: {url: "redis://127.0.0.1:1/0", key: "item:{u}"}},
    missing: keep, fields: {v: value}}, output: c}
"""


def test_what_is_known_of_a_text_is_as_certain_as_what_is_known_of_a_number() -> None:
    values = tuple({"at": 1_000_000_000, "k": "a", "u": u, "n": 1} for u in (1, "a!"))
    assert not examine(Case(1, ASKED, (Push("hits", values), Finish(None))), [REFERENCE])


NAMED = """\
pipeline: p
streams: {hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}}
computations:
  c: {input: {hits: {key: {number: n // 2}}}, callback: "callbacks:Free", options: {out: c},
    output: c}
sinks: {c: {files: {path: c, mode: upsert, by: k}}}
"""


def test_rows_by_a_field_have_it_as_their_key_whatever_key_they_were_made_with() -> None:
    values = tuple({"at": 1_000_000_000 + n, "k": "a", "u": 0, "n": n} for n in range(3, 7))
    assert not examine(Case(1, NAMED, (Push("hits", values), Finish(None))), [REFERENCE])


@pytest.mark.parametrize("document", cases(files(TRANSCRIPTS / "pipelines")))
def test_a_transcript_of_a_pipeline_holds(document: Any, tmp_path: Path) -> None:
    joins = [each.get("join") for each in document["computations"].values()]
    if any("ttl" in join for join in joins if isinstance(join, dict)):
        pytest.skip("the reference forgets no rows of joins")
    reference = _reference(document, tmp_path)
    told: dict[str, int] = {}
    said: dict[str, Any] = {}
    for number, step in enumerate(document["steps"]):
        [(action, given)] = step.items()
        if action == "say":
            assert said == given, number
            said = {}
            continue
        assert not said, f"step {number}: not expected before it: {said}"
        for each in _actions(action, given):
            reference.run(each)
        said = _said(reference, document, told)
    assert not said
    counters = reference.outcome().counters.values()
    for name, expected in document.get("counters", {}).items():
        assert sum(each.get(name, 0) for each in counters) == expected, name


def _reference(document: Any, folder: Path) -> Reference:
    streams = {
        name: {"source": "injection", "timestamp": {"field": "t", "unit": "us"}}
        for name in document["streams"]
    }
    spec = {"pipeline": "transcript", "streams": streams, "computations": document["computations"]}
    (folder / "pipeline.yaml").write_text(json.dumps(spec).replace('"code:', '"transcript_code:'))
    (folder / "transcript_code.py").write_text(CODE)
    return Reference(load_pipeline(str(folder / "pipeline.yaml"), {}))


def _actions(action: str, given: Any) -> list[Action]:
    if action == "push":
        return [Push(stream, tuple(values)) for stream, values in given.items()]
    if action == "watermark":
        times = given if isinstance(given, dict) else {None: given}
        return [Watermark(t, stream) for stream, t in times.items()]
    if action == "clock":
        return [Clock(given)]
    return [Finish()] if action == "finish" else []


def _said(reference: Reference, document: Any, told: dict[str, int]) -> dict[str, Any]:
    outcome = reference.outcome()
    found: dict[str, list[Any]] = {
        stream: [row.value for row in rows]
        for stream, rows in outcome.streams.items()
        if stream not in document["streams"]
    }
    found["dead_letters"] = [f"{letter.where}: {letter.reason}" for letter in outcome.letters]
    fresh = {stream: values[told.get(stream, 0) :] for stream, values in found.items()}
    told.update({stream: len(values) for stream, values in found.items()})
    ordered = document.get("ordered")
    return {
        stream: values if ordered else sorted(values, key=lambda value: json.dumps(value))
        for stream, values in fresh.items()
        if values
    }


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", cases(files(TRANSCRIPTS)))
def test_a_transcript_of_windows_holds(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if "refused" in document:
        pytest.skip("what is refused is not run")
    monkeypatch.setattr(windows, "WindowHarness", ReferenceWindow)
    # How many entries of state the runtime keeps is its own business.
    document["steps"] = [step for step in document["steps"] if "slots" not in step]
    windows.test_transcript(document, stored=False)


@pytest.mark.parametrize("document", cases(files(TRANSCRIPTS / "conformance")))
def test_a_transcript_in_the_manner_of_beam_holds(
    document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "WindowHarness", ReferenceWindow)
    if "error" in document:
        with pytest.raises(AssertionError, match=re.escape(document["error"])):
            adapter.run(document)
    else:
        adapter.run(document)


_EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", (HOUSE / "docs" / "windows.md").read_text(), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("example", _EXAMPLES)
def test_an_example_of_the_page_about_windows_holds(example: str) -> None:
    text = example.replace("from millwheel.testing import WindowHarness", "")
    exec(
        compile(text, "windows.md", "exec"),
        {"WindowHarness": ReferenceWindow, "__name__": "example"},
    )
