from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millwheel.errors import SetupError, UnavailableError
from millwheel.tools.cli.change import scale as module


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose driver answers what the test says."""
    state = SimpleNamespace(asked=[], answers=[], driven=True)
    monkeypatch.setattr(module, "chosen_root", Path)
    monkeypatch.setattr(module, "attach", lambda root: None)
    monkeypatch.setattr(module, "ask", lambda root, workers: state.asked.append(workers))
    monkeypatch.setattr(
        module, "answer", lambda root: state.answers.pop(0) if state.answers else None
    )
    monkeypatch.setattr(module, "is_driven", lambda root: state.driven)
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    return state


def said(workers: int, limit_s: float = 9.0) -> str:
    out = io.StringIO()
    module.scale("/root", workers, limit_s, Console(file=out, width=200))
    return out.getvalue()


def answered(workers: int, problem: str = "") -> Any:
    return SimpleNamespace(workers=workers, problem=problem)


def test_it_waits_until_the_driver_has_so_many_workers(run: Any) -> None:
    run.answers = [None, answered(2), answered(3)]
    assert "There are 3 workers." in said(3)
    assert run.asked == [3]


def test_a_refusal_is_told_in_the_drivers_words(run: Any) -> None:
    run.answers = [answered(9, "there are 4 slots")]
    with pytest.raises(SetupError, match="There cannot be 9 workers: there are 4 slots"):
        said(9)


def test_a_driver_that_is_slow_or_gone_is_told(run: Any) -> None:
    with pytest.raises(
        UnavailableError, match="There are not 3 workers after 0 s; the run keeps trying"
    ):
        said(3, 0.0)
    run.driven = False
    with pytest.raises(UnavailableError, match="The run ended before there were 3 workers"):
        said(3)


def test_the_change_is_one_object_for_other_programs(
    run: Any, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run.answers = [answered(3)]
    module.scale("/root", 3, 9.0, Console(file=io.StringIO()), as_json=True)
    assert msgspec.json.decode(capfdbinary.readouterr().out) == {"root": "/root", "workers": 3}
