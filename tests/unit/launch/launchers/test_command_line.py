"""The command line that others see."""

from __future__ import annotations

import subprocess
import sys

from millwheel.launch.launchers.command_line import ROOM


def test_a_command_line_that_is_too_long_is_cut_off() -> None:
    code = "\n".join(
        (
            "import sys; from pathlib import Path; from millwheel.launch.launchers.command_line import show_as",
            "assert show_as(['worker', 'x' * 5_000])",
            "print(Path('/proc/self/cmdline').read_bytes().rstrip(b'\\0').decode().split('\\0'))",
        )
    )
    told = subprocess.run([sys.executable, "-c", code, ROOM], capture_output=True, text=True, check=True)
    name, argument = eval(told.stdout)
    assert name == "worker"
    assert set(argument) == {"x"}
    assert len(ROOM) <= len(argument) < 5_000
