"""The commands reach their code."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from millwheel.tools.cli.ask import named


def test_every_option_of_a_query_that_is_set_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(named, "set_queries", lambda *given: calls.append((*given[:-2], given[-1])))
    monkeypatch.setattr(
        named, "remove_query", lambda *given: calls.append((*given[:-2], given[-1]))
    )
    for words in ("set /r ctr --formula a.n --window 1h", "set /r q.yaml --json", "remove /r ctr"):
        assert CliRunner().invoke(app, ["queries", *words.split()]).exit_code == 0
    assert calls == [
        ("/r", "ctr", "a.n", "1h", False),
        ("/r", "q.yaml", "", "", True),
        ("/r", "ctr", False),
    ]
