"""Code that a pipeline names is imported when it is checked, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.language.spec.test_pipelines import MINIMAL


def test_without_checking_code_nothing_is_imported(weblog: str, check: Any, folder: Path) -> None:
    (folder / "detectors.py").write_text("raise SystemExit('imported')")
    assert check(weblog, check_code=False).name == "weblog"


def test_a_factory_of_a_third_party_that_fails_is_a_problem(
    problems: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> None:
        raise RuntimeError("no such broker")

    monkeypatch.setattr("millwheel.connect.sinks.build_sink", fails)
    (found,) = problems(MINIMAL)
    assert found.endswith(
        "sinks.out.stdout: stdout cannot be built with these options: RuntimeError: no such broker"
    )
