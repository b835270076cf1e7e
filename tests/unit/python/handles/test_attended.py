from __future__ import annotations

import io

from rich.console import Console

from millwheel.errors import PipelineError
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.python.handles.attended import RunState, driven, failed


def test_a_pipeline_that_cannot_run_is_an_outcome_with_its_sentences() -> None:
    found = driven(
        RunSettings("nowhere.py", launcher=LauncherKind.SPARK), Console(file=io.StringIO())
    )
    assert (found.state, found.error) == (RunState.FAILED, "SetupError")
    assert "nowhere.py" in found.text[0]


def test_long_errors_fit_into_the_pipe() -> None:
    found = failed(PipelineError(*["x" * 50_000] * 300))
    assert sum(map(len, found.text)) <= 20_000
