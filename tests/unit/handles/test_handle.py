from __future__ import annotations

import pytest

from millwheel.errors import BrokenError, PipelineError, SetupError, UnavailableError
from millwheel.handles.attended import RunOutcome, RunState, failed
from millwheel.handles.handle import _error


@pytest.mark.parametrize(
    "error",
    [
        PipelineError("a.py:1: x", "a.py:2: y"),
        SetupError("no room"),
        BrokenError("too much", "n"),
        UnavailableError("z"),
    ],
)
def test_an_error_of_the_driver_is_the_same_error_here(error: Exception) -> None:
    found = _error(failed(error))  # type: ignore[arg-type]
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert getattr(found, "node", "") == getattr(error, "node", "")


def test_an_error_that_nobody_knows_is_one_of_the_setup() -> None:
    assert type(_error(RunOutcome(RunState.FAILED, None, "StrangeError", ("x",)))) is SetupError
