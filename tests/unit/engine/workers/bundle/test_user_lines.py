"""Lines of the user's code."""

from __future__ import annotations

import json
import os
import sys
from types import FrameType
from typing import Any

import pytest

from millwheel.core.expressions.language import compile_expression
from millwheel.engine.workers.bundle import user_lines
from millwheel.engine.workers.bundle.user_lines import current_line, is_library, line_of
from millwheel.errors import RecordError


def run_as(file: str, code: str, **names: Any) -> Any:
    """What ``made`` is, in a file of that name."""
    exec(compile(code, file, "exec"), names)
    return names["made"]


OURS = os.path.join(os.path.dirname(user_lines.__file__), "..", "..", "core", "any.py")


def test_files_of_the_package_of_python_and_of_libraries_are_not_the_users() -> None:
    assert is_library(os.path.abspath(OURS))
    assert is_library(json.__file__)
    assert is_library(pytest.__file__)
    assert not is_library(__file__)
    assert not is_library("/home/ann/millwheel/visits.py")


def test_the_line_that_runs_is_the_users() -> None:
    inside = run_as(os.path.abspath(OURS), "def made(): return frame()", frame=sys._getframe)
    frame: FrameType = inside()
    assert current_line(frame).startswith("test_user_lines.py:")
    assert current_line(frame).endswith("in test_the_line_that_runs_is_the_users")
    assert current_line(None) == "an unknown line"


def raised_in(file: str, error: BaseException) -> Any:
    return run_as(file, "def made():\n    raise error", error=error)


def test_an_exception_comes_from_the_line_of_the_user_that_called_what_raised_it() -> None:
    def process_record(call: Any) -> None:
        call()

    calls = [raised_in(os.path.abspath(OURS), RecordError("no")), lambda: json.loads("{")]
    for call in calls:
        with pytest.raises((RecordError, ValueError)) as told:
            process_record(call)
        assert line_of(told.value).startswith("test_user_lines.py:")
    assert line_of(ValueError()) == "an unknown line"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("100 // d", "`100 // d`"),
        ("d + missing", "field 'missing'"),
        ("x.region", "field 'region'"),
    ],
)
def test_an_expression_that_fails_is_its_own_place(text: str, place: str) -> None:
    value = {"d": 0, "x": None}
    evaluate = compile_expression(text).evaluate
    with pytest.raises(RecordError) as told:
        evaluate(value)
    trace = told.value.__traceback__
    assert trace is not None
    assert line_of(told.value).startswith("test_user_lines.py:"), "called by code of the user's"
    assert line_of(told.value.with_traceback(trace.tb_next)) == place


def test_without_a_line_of_the_user_it_is_the_innermost_one_that_is_not_ours() -> None:
    for file, expected in (
        (os.path.abspath(OURS), "any.py:2 in made"),
        ("/home/ann/lib/site-packages/installed.py", "installed.py:2 in made"),
    ):
        with pytest.raises(RecordError) as told:
            raised_in(file, RecordError("no"))()
        trace = told.value.__traceback__
        assert trace is not None
        assert line_of(told.value.with_traceback(trace.tb_next)) == expected
