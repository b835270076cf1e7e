"""What a new user does on a machine with Python only, in the order and with the commands of the
tutorial."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.chromium import browser
from tests.servers.programs import free_port
from tests.slow.runs import REPO
from tests.slow.test_wheel import SUPPORTED, built, installed
from tests.unit.test_docs import files_of_the_readme
from tests.unit.test_tutorial import TUTORIAL

pytestmark = pytest.mark.slow

PAGE = (TUTORIAL / "6-watch-it.md").read_text(encoding="utf-8")
VERSION = SUPPORTED[-1]


class User:
    """A shell in a folder, with nothing on its path but a clean environment. Commands must stand on
    the page."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.ports = {"8081": str(free_port()), "8082": str(free_port())}
        self._programs = programs
        self._environment = {
            "PATH": str(programs),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
        }

    def words(self, command: str) -> list[str]:
        """The command of the page, at a port that is free."""
        assert re.search(rf"^{re.escape(command)}\b", PAGE, re.MULTILINE), (
            f"the page has no {command}"
        )
        name, *rest = shlex.split(command)
        return [str(self._programs / name), *(self.ports.get(word, word) for word in rest)]

    def start(self, command: str, told: str = "said.txt") -> psutil.Popen:
        with (self.folder / told).open("wb") as said:
            streams = {"stdout": said, "stderr": said, "cwd": self.folder, "env": self._environment}
            return psutil.Popen(self.words(command), **streams)

    def runs(self, command: str) -> str:
        """What the command says."""
        where = {"cwd": self.folder, "env": self._environment}
        done = subprocess.run(self.words(command), **where, capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode == 0 else ""

    def said(self) -> str:
        """What the run has said."""
        return (self.folder / "said.txt").read_text(errors="replace")


@pytest.fixture
def user(tmp_path: Path) -> User:
    wheel = built(REPO, tmp_path / "dist")
    files_of_the_readme(tmp_path)
    return User(tmp_path, installed(wheel, VERSION, tmp_path / "environment", "ui"))


@pytest.fixture
def run(user: User) -> Iterator[psutil.Popen]:
    """The pipeline of the README, with the one line that the page changes."""
    [followed] = re.findall(r"^source: (.*follow: true.*)$", PAGE, re.MULTILINE)
    pipeline = user.folder / "visits.yaml"
    text, changes = re.subn(r"source: .*", f"source: {followed}", pipeline.read_text())
    assert changes == 1
    pipeline.write_text(text)
    process = user.start(
        "millwheel run visits.yaml --set input=visits.jsonl --set output=out --ui 8081"
    )
    yield process
    if process.poll() is None:
        for each in (*process.children(recursive=True), process):
            each.kill()
        process.wait()


@pytest.fixture
def tab(user: User, run: psutil.Popen) -> Iterator[Any]:
    """The page of the run in a browser."""
    until(user.said, "3 records")
    printed = re.search(rf"http://127\.0\.0\.1:{user.ports['8081']}/#token=\w+", user.said())
    assert printed is not None
    with browser() as chromium:
        opened = chromium.new_page()
        opened.goto(printed[0])
        yield opened


def until(asked: Callable[[], str], pattern: str, within_s: float = 60) -> str:
    """The answer, once the pattern is in it."""
    deadline_s = time.monotonic() + within_s
    answer = ""
    while time.monotonic() < deadline_s:
        answer = asked()
        if re.search(pattern, answer):
            return answer
        time.sleep(0.1)
    raise AssertionError(f"no {pattern} in {answer}")


def test_install_run_look_kill_a_worker_and_replay_a_dead_letter(
    user: User, run: psutil.Popen, tab: Any
) -> None:
    until(lambda: tab.inner_text("#graph"), "by_page")
    status = until(lambda: user.runs("millwheel status"), "source.visits")
    assert "by_page" in status
    [worker, *_] = [
        each
        for each in run.children(recursive=True)
        if "millwheel.engine.workers" in each.cmdline()
    ]
    worker.kill()
    assert "The run reports `1 restart`" in PAGE
    until(user.said, "1 restart")
    assert "the page's time line shows which worker died" in PAGE
    until(lambda: tab.inner_text("#panel"), r"worker \d is gone")
    until(lambda: tab.inner_text("#panel"), r"shards of \S+ went to \S+ within")
    [line] = re.findall(r"^echo '(.*)' >> visits.jsonl", PAGE, re.MULTILINE)
    with (user.folder / "visits.jsonl").open("a") as file:
        file.write(f"{line}\n")
    until(user.said, "2 dead letters")
    assert "has no field 'user'" in user.runs("millwheel letters")
    ui = user.start("millwheel ui .millwheel/visits --port 8082 --writable", "ui.txt")
    said = until((user.folder / "ui.txt").read_text, r"The page is at (\S+)")
    tab.goto(said.split()[-1])
    tab.click("#tab-letters")
    tab.click("#panel article > button >> nth=0")
    until(lambda: tab.inner_text("#panel"), "1 dead letter is tried again, now")
    ui.terminate()
    assert ui.wait(20) is not None
    until(user.said, "3 dead letters")
    assert "2 dead letters are tried again" in user.runs("millwheel replay .millwheel/visits")
    until(user.said, "5 dead letters")
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 0
    returned = (path.read_text() for path in (user.folder / "out" / "returned").glob("*.jsonl"))
    assert "".join(returned) == '{"user":"ann","away_s":300}\n'
