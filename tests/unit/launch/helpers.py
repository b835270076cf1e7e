"""Small programs that stand for workers, and patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from millwheel.launch.launchers.base import WorkerTemplate

WORKER = """
import os, signal, sys, time
from millwheel.adapters.processes.lifeline import die_with_parent
die_with_parent()
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
signal.signal(signal.SIGTERM, lambda *_: (print("stopped", file=sys.stderr, flush=True),
  sys.exit(0)))
with open(f"{given['--root']}/life-{given['--slot']}-{os.getpid()}.tmp", "w") as life:
    life.write(given["--scratch"])
os.rename(life.name, life.name[:-4])
print("hello from", given["--slot"], flush=True)
how = f"{given['--root']}/exit"
if os.path.exists(how):
    print("last words", file=sys.stderr, flush=True)
    sys.exit(int(open(how).read()))
time.sleep(600)
"""


def write_worker(folder: Path) -> str:
    """Put the stand-in where ``python -m`` finds it, given the folder in PYTHONPATH; its module
    name."""
    (folder / "stand_in_worker.py").write_text(WORKER)
    return "stand_in_worker"


def template(folder: Path, module: str) -> WorkerTemplate:
    """Workers of that module with everything below ``folder``."""
    (folder / "logs").mkdir(exist_ok=True)
    return WorkerTemplate(
        str(folder), "127.0.0.1:1", "p", str(folder / "logs"), str(folder / "scratch"), module
    )


def lives(folder: Path, slot: int) -> list[int]:
    """The process ids of all lives of a slot so far."""
    return sorted(
        int(path.name.split("-")[2])
        for path in folder.glob(f"life-{slot}-*")
        if path.suffix != ".tmp"
    )


def eventually(what: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
