from __future__ import annotations

import subprocess
import sys

import pytest

from millwheel.errors import BrokenError, SetupError
from millwheel.tools.cli.errors import sentences


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SetupError("no Java"), 1, "millwheel: no Java\n"),
        (BrokenError("too much failed", "node"), 3, "millwheel: too much failed\n"),
        (KeyboardInterrupt(), 130, "millwheel: interrupted\n"),
    ],
)
def test_an_error_is_a_sentence_and_a_code(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.stderr
    with pytest.raises(SystemExit) as caught, sentences():
        raise error
    assert caught.value.code == code
    assert capsys.readouterr().err == words
    assert sys.stderr is before


def test_a_mistake_of_ours_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), sentences():
        _ = 1 / 0


def test_a_reader_that_has_gone_ends_us_quietly() -> None:
    code = "from millwheel.tools.cli.errors import sentences\n"
    code += "with sentences():\n    while True: print('x' * 1000, flush=True)"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    assert (run.wait(30), run.stderr.read()) == (1, b"")
    run.stderr.close()
