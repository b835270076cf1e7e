from __future__ import annotations

from types import ModuleType

import pytest
from typer.testing import CliRunner

from millwheel.errors import SetupError
from millwheel.tools.cli.app import app
from millwheel.tools.cli.change import letters, ranges, savepoint
from millwheel.tools.cli.change.commands import seconds


@pytest.mark.parametrize(
    ("words", "module", "name", "given"),
    [
        ("ranges show c --root /r --json", ranges, "show", ("/r", "c", True)),
        ("ranges split c-0 --root /r --key k", ranges, "split", ("/r", "c-0", "", "k", False)),
        ("ranges merge c-0 c-1 --root /r", ranges, "merge", ("/r", "c-0", "c-1", False)),
        ("ranges move c-0 w1 --root /r", ranges, "move", ("/r", "c-0", "w1", False)),
        ("scale --workers 3 --root /r", ranges, "scale", ("/r", 3, False)),
        ("savepoint /s --root /r", savepoint, "savepoint", ("/s", "/r", False)),
        ("letters /r --json", letters, "letters", ("/r", "", "", True)),
    ],
)
def test_the_options_reach_the_command(
    words: str,
    module: ModuleType,
    name: str,
    given: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(module, name, lambda *words: asked.append(words))
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    plain = tuple(each for each in asked[0] if isinstance(each, (str, int, bool)))
    assert plain == given


def test_a_duration_is_seconds() -> None:
    assert (seconds("1500ms", "--every"), seconds("2m", "--every")) == (1.5, 120.0)


@pytest.mark.parametrize("text", ["soon", "0s", "-1s", "5", ""])
def test_what_is_none_is_told_with_its_option(text: str) -> None:
    with pytest.raises(SetupError, match=f"--every {text}"):
        seconds(text, "--every")
