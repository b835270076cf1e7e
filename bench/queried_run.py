"""A run of slices that is asked while records flow in: the pipeline, a writer of records, and
clients that ask."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.paths import HOUSE, PIPELINES
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import QueryTable
from millwheel.engine.queries.link import Links
from millwheel.engine.queries.peer_client import Workers
from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.processes import processes_of
from millwheel.tools.gateway.run_follower import FollowedRun

KEYS = 400
_FILES = 4
_PAUSE_S = 0.02
_READY_S = 60.0
_END_S = 60.0


@dataclass
class Writer:
    """Appends ``rate`` records a second to the files, until told to stop. Their time is the wall
    clock."""

    folder: Path
    rate: int
    written: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """On a thread of its own."""
        rng, began = random.Random(7), time.monotonic()
        files = [
            (self.folder / f"{number}.jsonl").open("ab", buffering=0) for number in range(_FILES)
        ]
        while not self.stop.wait(_PAUSE_S):
            due, at_us = int((time.monotonic() - began) * self.rate), time.time_ns() // 1000
            parts: list[list[bytes]] = [[] for _ in files]
            for number in range(self.written, due):
                parts[number % _FILES].append(
                    b'{"at":%d,"key":%d,"cost":%d}\n' % (at_us, rng.randrange(KEYS), number % 7)
                )
            for file, part in zip(files, parts, strict=True):
                file.write(b"".join(part))
            self.written = due
        for file in files:
            file.close()


@dataclass
class QueriedRun:
    """A run in the background, and what is known of it."""

    folder: Path
    driver: subprocess.Popen[bytes]
    known: FollowedRun
    port: int

    def workers(self) -> list[psutil.Process]:
        """The living workers, oldest first."""
        return processes_of(self.driver.pid, Target.WORKERS)

    def followed(self) -> bool:
        """Whether every shard has a standby that answers."""
        entries = [
            entry for ranges in self.known.owners._tables.values() for entry in ranges.shards
        ]
        mine = [entry for entry in entries if entry.shard.startswith("clicks")]
        return bool(mine) and all(entry.owner and entry.standby for entry in mine)


def until(what: Callable[[], object], within_s: float = _READY_S) -> None:
    """Wait for something."""
    end = time.monotonic() + within_s
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("the run did not get ready")
        time.sleep(0.05)


@contextmanager
def queried_run(
    folder: Path,
    workers: int = 2,
    standby: bool = False,
    spares: int = 0,
    pipeline: str = "queried.yaml",
) -> Iterator[QueriedRun]:
    """A run that answers. Ended, and all its processes with it, when the context ends."""
    (folder / "in").mkdir(parents=True)
    for number in range(_FILES):
        (folder / "in" / f"{number}.jsonl").touch()
    port = _free_port()
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(PIPELINES / pipeline),
        "--launcher",
        "processes",
    ]
    command += ["--workers", str(workers), "--spares", str(spares), "--root", str(folder / "root")]
    # a token is shown once for each connection, which no figure here is about
    command += ["--open"]
    command += [
        "--set",
        f"input={folder}/in/*.jsonl",
        "--set",
        f"standby={int(standby)}",
        "--query-port",
        str(port),
    ]
    with (folder / "said.txt").open("wb") as said:
        environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
        driver = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
    known = None
    try:
        until((folder / "root" / "run.json").exists)
        known = FollowedRun(folder / "root", QueryTable(open_space(str(folder / "root"))))
        known.start()
        found = QueriedRun(folder, driver, known, port)
        until(
            lambda: (
                found.known.owners.ready() == ""
                and len(found.known.owners.addresses) == workers + spares
            )
        )
        if standby:
            until(found.followed)
        yield found
    finally:
        if known is not None:
            known.stop()
        driver.send_signal(signal.SIGINT)
        try:
            driver.wait(_END_S)
        except subprocess.TimeoutExpired:
            driver.kill()


def asking_workers() -> Workers:
    """As a gateway asks. For one asyncio loop."""
    return Workers(Links())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
