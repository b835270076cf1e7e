"""The boundary around functions of the user's that expressions call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.kinds import build_sink
from millwheel.connect.own_functions import (
    expression_of,
    expressions_in,
    language_of,
    named_alone,
    own_function,
)
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.core.expressions.declaration import MOST_ARGUMENTS
from millwheel.core.expressions.language import BUILT_IN
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import CorruptionError, InvariantError, PipelineError, RecordError
from millwheel.testing import PipelineHarness


def raising(ex: BaseException) -> Any:
    def function(value: Any) -> Any:
        raise ex

    return own_function("f", function)


@pytest.mark.parametrize(
    "ex", [KeyError("x"), ZeroDivisionError(), SystemExit(3), MemoryError(), GeneratorExit()]
)
def test_whatever_it_raises_concerns_the_record(ex: BaseException) -> None:
    with pytest.raises(RecordError, match=rf"f\(\) failed: {type(ex).__name__}"):
        raising(ex).call(1)


def test_its_own_refusal_is_told_as_it_is() -> None:
    with pytest.raises(RecordError, match=r"^not this one$"):
        raising(RecordError("not this one")).call(1)


@pytest.mark.parametrize("ex", [CorruptionError("bad disk"), InvariantError("never")])
def test_what_concerns_the_shard_passes(ex: Exception) -> None:
    with pytest.raises(type(ex)):
        raising(ex).call(1)


DEEP: list[Any] = []
for _ in range(600):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value", ["\ud800", object(), [range(3)], {"a": "\udfff"}, {"a": 10**40}, DEEP]
)
def test_what_no_record_can_have_concerns_the_record(value: Any) -> None:
    with pytest.raises(RecordError, match=r"^f\(\) gives a \w+ that no record can have: "):
        own_function("f", lambda: value).call()


@pytest.mark.parametrize("value", [10**40, float("nan"), None, "é", b"x", [{"a": (1, None)}]])
def test_what_a_record_can_have_is_given_on(value: Any) -> None:
    assert own_function("f", lambda: value).call() is value


POISONED = """pipeline: p
functions: {f: "odd:f"}
streams:
  hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}
computations:
  kept:
    input: {hits: {key: k}}
    window: {tumbling: 10us}
    aggregate: {all: {collect: f(n)}, last: {last: f(n)}, n: {count_distinct: f(n)}}
    output: kept
"""


def test_a_value_that_a_window_cannot_keep_costs_its_own_record_alone(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POISONED)
    (tmp_path / "odd.py").write_text("def f(n):\n    return '\\ud800' if n == 1 else n\n")
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("hits", [{"at": n, "k": "a", "n": n} for n in range(4)])
        harness.finish()
        [row] = harness.take("kept")
        [letter] = harness.read("dead_letters")
    assert (row["all"], row["last"], row["n"]) == ([0, 2, 3], 3, 3)
    assert letter["value"]["n"] == 1


def test_it_cannot_change_what_others_see() -> None:
    tags = ["a"]
    own_function("f", lambda value: value.append("b")).call(tags)
    assert tags == ["a"]


@pytest.mark.parametrize(
    ("function", "arity"),
    [
        (lambda a, b=1: 0, (1, 2)),
        (lambda *a: 0, (0, MOST_ARGUMENTS)),
        (lambda a, *, b=1: 0, (1, 1)),
        (sys.stdout.write, (1, 1)),
        (min, (0, MOST_ARGUMENTS)),  # Python does not tell
    ],
)
def test_the_number_of_arguments_is_what_python_tells(
    function: Any, arity: tuple[int, int]
) -> None:
    own = own_function("f", function)
    assert (own.least, own.most) == arity


def spec_of(folder: Path, **functions: str) -> PipelineSpec:
    return PipelineSpec("p", (), (), (), str(folder), functions=functions)


def test_the_language_of_a_pipeline_has_its_own_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(n): return n * 2\nN = 1\n")
    assert language_of(spec_of(tmp_path)) is BUILT_IN
    found = language_of(spec_of(tmp_path, twice="mine:twice"))
    assert found.compile("twice(n)").evaluate({"n": 4}) == 8
    with pytest.raises(PipelineError, match="N is a int, not a function"):
        language_of(spec_of(tmp_path, N="mine:N"))


def test_two_pipelines_of_a_process_have_functions_of_their_own(tmp_path: Path) -> None:
    languages = []
    for number in (2, 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(f"def times(n): return n * {number}\n")
        languages.append(language_of(spec_of(folder, times="mine:times")))
    assert [each.compile("times(n)").evaluate({"n": 5}) for each in languages] == [10, 15]


def test_sinks_are_built_and_opened_in_the_language_of_their_pipeline(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(n): return n * 2\n")
    options = {"path": "out", "partition_by": [{"d": "twice(n)"}]}
    spec = SinkSpec("out", "files", options)
    language = language_of(spec_of(tmp_path, twice="mine:twice"))
    with expressions_in(language):
        sink = build_sink(spec, str(tmp_path))
        sink.check("root")
        writer = sink.open("out.0", 1)
        assert expression_of("twice(n)").evaluate({"n": 4}) == 8
    committable = writer.prepare(SinkBatch(0, "1-0", [SinkRecord("k", {"n": 4}, 0)]))
    writer.publish(committable)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."] == ["d=8"]
    with pytest.raises(ValueError, match=r"unknown function 'twice'"):
        build_sink(spec, str(tmp_path))


def test_names_alone_load_nothing(tmp_path: Path) -> None:
    expression = named_alone({"rating": "gone:rating"}).compile("rating(n) + k")
    assert expression.fields == ("n", "k")
    with pytest.raises(InvariantError):
        expression.evaluate({"n": 1, "k": 2})
