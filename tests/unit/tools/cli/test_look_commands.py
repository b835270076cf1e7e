from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from millwheel.control.roots.root import Root
from millwheel.errors import SetupError
from millwheel.tools.cli import doctor as examining
from millwheel.tools.cli import logs as printing
from millwheel.tools.cli import status
from millwheel.tools.cli import status as showing
from millwheel.tools.cli.app import app
from millwheel.tools.cli.arguments import chosen_root, the_root
from millwheel.tools.cli.change import savepoint


@pytest.mark.parametrize(
    ("words", "module", "name", "given"),
    [
        ("status /r --watch", status, "status", ("/r", False, True)),
        ("status --root /r --json", status, "status", ("/r", True, False)),
        ("logs /r --computation c --level error", printing, "logs", ("/r", "c", "error", False)),
        ("metrics /r", showing, "metrics", ("/r",)),
        ("doctor --root /r --zookeeper h:1 --json", examining, "doctor", ("/r", "", "h:1", True)),
    ],
)
def test_the_options_reach_the_command(
    words: str,
    module: object,
    name: str,
    given: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, ...]] = []

    def note(*values: object) -> int:
        asked.append(tuple(value for value in values if isinstance(value, str | bool)))
        return 0

    monkeypatch.setattr(module, name, note)
    result = CliRunner().invoke(app, words.split())
    assert (result.exit_code, asked) == (0, [given])


def test_the_shell_completes_commands() -> None:
    asked = {
        "_MILLWHEEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "millwheel doc",
        "COMP_CWORD": "1",
    }
    result = CliRunner().invoke(app, [], prog_name="millwheel", env=asked)
    assert result.stdout.split() == ["doctor"]


# arguments.py


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


# the root that is chosen


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
