"""Runs of the real command in the tests: with kills, with signals, and what came out of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

from millwheel.adapters.zookeeper.server import EmbeddedZooKeeper
from millwheel.launch.coordinator import embedded_zookeeper

REPO = Path(__file__).parents[2]
EXAMPLES = REPO / "examples"

_GRACE_S = 60.0


@contextmanager
def zookeeper(folder: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server of its own, until the end of the context."""
    server = embedded_zookeeper(str(folder))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def rows_of(folder: Path) -> list[Any]:
    """The rows of a folder's files, in the order of their names."""
    return [
        json.loads(row)
        for path in sorted(folder.glob("*.jsonl"))
        for row in path.read_text().splitlines()
    ]


def count_rows(folder: Path) -> int:
    """The number of rows of a folder's files. They are not parsed: tests ask again and again."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))


@dataclass
class Run:
    """One ``millwheel run`` as a child process. ``said`` is all it printed, once it has ended."""

    pipeline: Path
    folder: Path
    params: dict[str, str] = field(default_factory=dict)
    launcher: str = "processes"
    workers: int = 2
    more: tuple[str, ...] = ()
    place: str = ""
    path: tuple[str, ...] = ()
    said: str = ""
    code: int | None = None
    started: ClassVar[list[Run]] = []

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def token(self) -> str:
        """What everything of this run wants to be shown."""
        return (self.root / "access" / "token").read_text().strip()

    @property
    def bearer(self) -> dict[str, str]:
        """The header that shows it."""
        return {"authorization": f"Bearer {self.token}"}

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    def start(self) -> Run:
        command = [
            sys.executable,
            "-m",
            "millwheel",
            "run",
            str(self.pipeline),
            "--launcher",
            self.launcher,
        ]
        for name, value in self.params.items():
            command += ["--set", f"{name}={value}"]
        command += [
            "--root",
            self.place or str(self.root),
            "--workers",
            str(self.workers),
            *self.more,
        ]
        command += ["--summary", str(self.folder / "summary.json")]
        self._log = (self.folder / "said.txt").open("w+b")
        path = os.pathsep.join((str(REPO), *self.path))
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "COLUMNS": "200",
            "PYTHONFAULTHANDLER": "1",
        }
        streams = {"stdout": self._log, "stderr": subprocess.STDOUT}
        # such a root keeps a folder below the current one
        place = self.folder if self.place else None
        self.process = subprocess.Popen(command, env=environment, cwd=place, **streams)  # type: ignore[call-overload]
        Run.started.append(self)
        return self

    def wait(self, timeout_s: float = 180) -> Run:
        """Until it ends by itself; what it said and its exit code are kept."""
        try:
            self.code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._end()
        self._log.seek(0)
        self.said = self._log.read().decode(errors="replace")
        self._log.close()
        assert self.code is not None, (
            f"it still ran after {timeout_s:.0f} s, and said:\n{self.said}"
        )
        return self

    def end(self) -> None:
        """Whatever a test did: nothing of the run is left."""
        if self.process.poll() is None:
            self._end()

    def _end(self) -> None:
        """Politely, or with the stacks of all its threads in what it said."""
        self.process.terminate()
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()

    def processes(self, what: str) -> list[psutil.Process]:
        """The run's live processes whose command line contains ``what``."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = " ".join(child.cmdline())
            except psutil.Error:
                continue
            if what in line and "lifeline" not in line:
                found.append(child)
        return found

    def until_reading(self, records: int = 1, timeout_s: float = 60) -> Run:
        """Until some records have gone all the way into a visible file, or the run is over."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            if list(self.folder.glob("out/*/*.jsonl")):
                return self
            time.sleep(0.05)
        return self

    def until_committed(self, timeout_s: float = 60) -> Run:
        """Until something is durable, or the run is over."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            if any(path.stat().st_size for path in self.root.glob("journal/*/*.log")):
                return self
            time.sleep(0.01)
        return self

    def kill_at_random(
        self, kinds: tuple[str, ...], seed: int, times: int, pause_s: tuple[float, float]
    ) -> dict[str, int]:
        """SIGKILL processes of these kinds while the run goes on; how many of each were killed."""
        rng, killed = random.Random(seed), dict.fromkeys(kinds, 0)
        for number in range(times):
            time.sleep(rng.uniform(*pause_s))
            if self.process.poll() is not None:
                break
            kind = kinds[number % len(kinds)]
            targets = self.processes(kind)
            if targets:
                target = rng.choice(targets)
                try:
                    target.send_signal(signal.SIGKILL)
                    killed[kind] += 1
                except psutil.NoSuchProcess:
                    pass
        return killed


def ads_events(folder: Path, records: int) -> Path:
    """Generated events with late ones and duplicates."""
    events = folder / "events.jsonl"
    command = [
        sys.executable,
        str(EXAMPLES / "ads" / "generate.py"),
        "--records",
        str(records),
        "--out",
        str(events),
    ]
    subprocess.run(
        [*command, "--late", "0.002", "--duplicates", "0.01"], check=True, capture_output=True
    )
    return events
