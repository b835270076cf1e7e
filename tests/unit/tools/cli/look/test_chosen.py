from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.roots.root import Root
from millwheel.tools.cli.look.chosen import chosen_root


def test_a_run_that_was_not_named_is_named_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Root.open(".millwheel/ads", "ads").close()
    assert chosen_root("") == tmp_path / ".millwheel" / "ads"
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "Using the run in .millwheel/ads\n")


def test_a_run_that_was_named_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen_root(str(tmp_path)) == tmp_path
    assert capsys.readouterr().err == ""
