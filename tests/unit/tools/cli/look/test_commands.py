from __future__ import annotations

import pytest
from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from millwheel.tools.cli.look import doctor as examining
from millwheel.tools.cli.look import logs as printing
from millwheel.tools.cli.look import metrics as gathering
from millwheel.tools.cli.look import status as showing


@pytest.mark.parametrize(
    ("words", "module", "name", "given"),
    [
        ("status /r --watch", showing, "status", ("/r", False, True)),
        ("status --root /r --json", showing, "status", ("/r", True, False)),
        ("logs /r --computation c --level error", printing, "logs", ("/r", "c", "error", False)),
        ("metrics /r", gathering, "metrics", ("/r",)),
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
