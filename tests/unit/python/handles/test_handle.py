from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.errors import BrokenError, PipelineError, SetupError, UnavailableError
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.python.handles import handle
from millwheel.python.handles.driver import RunOutcome, RunState, driven, failed
from millwheel.python.handles.handle import _error


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


def test_a_run_that_is_stopped_before_it_listens_is_stopped_and_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle.sys, "executable", str(tmp_path / "sleeps"))
    (tmp_path / "sleeps").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "sleeps").chmod(0o755)
    settings = RunSettings("p.yaml", root=str(tmp_path / "root"))
    begun = handle.RunHandle(settings, "p", {}, tmp_path / "shipped", shows=False)
    assert begun.stop(20).state is RunState.STOPPED


def test_a_run_that_somebody_else_ends_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle.sys, "executable", str(tmp_path / "ends"))
    (tmp_path / "ends").write_text("#!/bin/sh\nkill -TERM $$\n")
    (tmp_path / "ends").chmod(0o755)
    settings = RunSettings("p.yaml", root=str(tmp_path / "root"))
    begun = handle.RunHandle(settings, "p", {}, tmp_path / "shipped", shows=False)
    assert begun.wait(20)
    assert begun.status().state is RunState.FAILED


# driver.py


def test_a_pipeline_that_cannot_run_is_an_outcome_with_its_sentences() -> None:
    found = driven(
        RunSettings("nowhere.py", launcher=LauncherKind.SPARK), Console(file=io.StringIO())
    )
    assert (found.state, found.error) == (RunState.FAILED, "SetupError")
    assert "nowhere.py" in found.text[0]


def test_long_errors_fit_into_the_pipe() -> None:
    found = failed(PipelineError(*["x" * 50_000] * 300))
    assert sum(map(len, found.text)) <= 20_000
