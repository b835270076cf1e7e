"""Nothing that a record says is obeyed by a terminal."""

from __future__ import annotations

import io
import sys

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millwheel.adapters.terminal import Terminal, plain, plain_stream
from millwheel.errors import SetupError
from millwheel.launch.progress.line import ProgressLine
from millwheel.tools.cli.errors import sentences
from millwheel.tools.dev.report import print_trial
from millwheel.tools.dev.stages import Stage, Trial

EVIL = "\x1b]52;c;ZXZpbA==\x07 \x9b2J \x1b[2J \r> \x7f \u202e \ud83d \x00"
OBEYED = [*map(chr, range(9)), *"\x0b\x0c\x0d\x0e\x1b\x7f\x9b\x90\u202e\u2028"]


class Screen(io.StringIO):
    """A stream that says it is a terminal, or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.bytes = io.BytesIO()

    def isatty(self) -> bool:
        return self._terminal

    @property
    def buffer(self) -> io.BytesIO:  # type: ignore[override]
        return self.bytes


@given(st.text(st.characters(), max_size=40))
def test_what_is_shown_has_no_control_characters(text: str) -> None:
    shown = plain(text)
    assert not any(each in shown.replace("\r\n", "") for each in OBEYED)
    shown.encode()
    assert plain(shown) == shown


def test_text_of_every_language_is_shown_as_it_is() -> None:
    text = "naïve Ωμέγα 日本語 🙂 עברית\tand a line\r\nbehind it\n"
    assert plain(text) == text


@pytest.mark.parametrize("terminal", [True, False])
def test_no_way_of_printing_lets_them_through(terminal: bool) -> None:
    screen = Screen(terminal)
    console = Terminal(file=screen, force_terminal=terminal)
    table = Table()
    table.add_column(EVIL)
    table.add_row(EVIL + "[/]", Text(EVIL))
    console.print(table, EVIL, Text(EVIL))
    console.print(
        EVIL + "[link=http://evil.example]x[/link] :smile:", soft_wrap=True, highlight=False
    )
    ProgressLine(console).announce(EVIL)
    print_trial(Trial([Stage(EVIL, EVIL, 1, [{EVIL: EVIL, "[/]": 1}])], [EVIL]), console)
    stream = plain_stream(screen)
    print(EVIL, file=stream)
    stream.writelines([EVIL])
    if terminal:
        stream.buffer.write(EVIL.encode("utf-8", "replace") + b"\x9b")
    shown = screen.getvalue()
    assert "]52" in shown
    assert "\x1b]" not in shown
    assert not set(shown) & set("\x07\x9b\x7f\u202e\0\r")
    assert "\x1b[2J" not in shown
    assert "http://evil.example]x" in shown


def test_lines_that_move_still_move() -> None:
    screen = Screen(True)
    console = Terminal(file=plain_stream(screen), force_terminal=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        live.update(Text(EVIL), refresh=True)
        live.update(Text("two"), refresh=True)
    shown = screen.getvalue()
    assert "\x1b[2K" in shown  # rich erases its own line
    assert "\x1b]" not in shown


def test_every_command_prints_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen(True), Screen(False)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    def command() -> None:
        typer.echo(EVIL)
        sys.stdout.buffer.write(EVIL.encode("utf-8", "replace"))
        Terminal().print(EVIL)
        raise SetupError(EVIL)

    with pytest.raises(SystemExit), sentences():
        command()
    for shown in (out.getvalue(), err.getvalue()):
        assert "]52" in shown
        assert not set(shown) & set("\x07\x9b\x7f\u202e\0\r")
        assert "\x1b]" not in shown


def test_bytes_for_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen(False)
    monkeypatch.setattr(sys, "stdout", out)
    with sentences():
        sys.stdout.buffer.write(b"\x1b\x9b")
    assert out.bytes.getvalue() == b"\x1b\x9b"
