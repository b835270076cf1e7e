from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from millwheel.errors import SetupError
from millwheel.tools.cli.app import app
from millwheel.tools.cli.change import savepoint
from millwheel.tools.cli.look import status
from millwheel.tools.cli.look.arguments import the_root


def test_every_command_whose_root_is_an_argument_takes_it_as_an_option_too() -> None:
    names = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if any(each.metavar == "[ROOT]" for each in command.params):
            names.append(name)
            assert any("--root" in each.opts for each in command.params), name
    assert {"status", "stop", "scale", "letters", "logs", "summary", "ui"} <= {*names}


@pytest.mark.parametrize("words", [("/r",), ("--root", "/r")])
def test_status_and_stop_take_the_root_alike(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(status, "status", lambda root, *_: asked.append(root))
    monkeypatch.setattr(savepoint, "stop", lambda root, *_: asked.append(root))
    for command in ("status", "stop"):
        assert CliRunner().invoke(app, [command, *words]).exit_code == 0
    assert asked == ["/r", "/r"]


def test_two_roots_are_refused() -> None:
    assert (the_root("", ""), the_root("/a", ""), the_root("", "/a")) == ("", "/a", "/a")
    assert the_root("/a", "/a") == "/a"
    with pytest.raises(SetupError, match="/a and --root /b are two roots: name one of them"):
        the_root("/a", "/b")
