"""Declarations of state give their handles a type without annotations, and mypy notices mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import HOUSE

pytestmark = pytest.mark.slow

CODE = HOUSE / "tests" / "typing" / "states.py"


def test_states_have_types_without_annotations_and_mistakes_are_errors(tmp_path: Path) -> None:
    words = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path), "--config-file=", str(CODE)]
    command = [sys.executable, "-m", "mypy", *words]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    found = {(int(line), kind) for line, kind in re.findall(r"states.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout)}
    lines = enumerate(CODE.read_text().splitlines(), 1)
    marked = {(number, line.rpartition("# error: ")[2]) for number, line in lines if "# error: " in line}
    assert found == marked, done.stdout + done.stderr
