"""The first step of the tutorial with its real commands: killed in the middle, and continued."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.test_tutorial import TUTORIAL, files_of

pytestmark = pytest.mark.slow


def test_the_first_run_can_be_killed_and_the_same_command_completes_it(tmp_path: Path) -> None:
    page = TUTORIAL / "1-first-run.md"
    files_of(page, tmp_path)
    commands = re.findall(r"^millwheel (run .*)$", page.read_text(), re.MULTILINE)
    assert len(set(commands)) == 1, "the same command continues"
    command = [sys.executable, "-m", "millwheel", *shlex.split(commands[0])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    with (tmp_path / "said.txt").open("wb") as said:
        run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=said)
        deadline_s = time.monotonic() + 60
        while not any((tmp_path / "hits").glob("*.jsonl")):
            assert run.poll() is None, (tmp_path / "said.txt").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert total(tmp_path) > 0
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "It prints `6000 hits`" in page.read_text()
    assert total(tmp_path) == 6000


def total(folder: Path) -> int:
    """What ``total.py`` says."""
    done = subprocess.run(
        [sys.executable, "total.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])
