"""The CPU time of each process of a run of part A or B while the clock runs: from the first open of
the input to the last change of the results.

    python -m bench clock_cpu windows|callback jsonl|parquet

Where cores are shared with other work, seconds say little, and CPU time inside the clock nearly as
much as ever: on two quiet cores a run cannot take less than half of the sum. The kernel's counts
(schedstat) of every thread are looked at 50 times a second. To compare two versions, run this file
in turn in a checkout of each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.contestants import Job, ours
from bench.inputs import ads
from bench.opened import FirstOpen, last_change

_RECORDS, _FILES = 1_000_000, 4
_LOOK_S = 0.02
Look = dict[int, tuple[str, float]]
"""By process: what it runs, and its CPU seconds."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m bench clock_cpu", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("pipeline", choices=("windows", "callback"))
    parser.add_argument("form", choices=("jsonl", "parquet"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clock-", ignore_cleanup_errors=True) as folder:
        seconds, used = measured(arguments.pipeline, arguments.form, Path(folder))
    told = ", ".join(f"{role} {cpu_s:.3f}" for role, cpu_s in used)
    print(f"{seconds:.3f} s, CPU s: {sum(cpu_s for _, cpu_s in used):.3f} ({told})")
    return 0


def measured(pipeline: str, form: str, folder: Path) -> tuple[float, list[tuple[str, float]]]:
    """Seconds by the clock, and what each process has used meanwhile."""
    source = ads(_RECORDS, _FILES).of(form)
    for path in source.iterdir():
        path.read_bytes()
    run = ours(pipeline)(Job(folder, source, form, 300.0))
    run.output.mkdir()
    looks: list[tuple[float, Look]] = []
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    with FirstOpen(source) as first:
        process = subprocess.Popen(run.command, cwd=folder, env={**os.environ, **run.env}, **quiet)  # type: ignore[call-overload]
        while first.at is None and process.poll() is None:
            time.sleep(0.001)
        while process.poll() is None:
            looks.append((time.time(), _look(process.pid)))
            time.sleep(_LOOK_S)
    ended = last_change(run.output)
    if process.returncode or first.at is None or ended is None:
        sys.exit(f"the run ended with {process.returncode}; opened: {first.at}, results: {ended}")
    before = looks[0][1]
    after = next((look for at, look in looks if at >= ended), looks[-1][1])
    return ended - first.at, [
        (role, cpu_s - before.get(pid, ("", 0.0))[1]) for pid, (role, cpu_s) in after.items()
    ]


def _look(pid: int) -> Look:
    found: Look = {}
    with contextlib.suppress(psutil.Error):
        for each in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with contextlib.suppress(psutil.Error, OSError):
                threads = Path(f"/proc/{each.pid}/task").iterdir()
                spent_ns = sum(
                    int((thread / "schedstat").read_text().split()[0]) for thread in threads
                )
                found[each.pid] = (_role(each.cmdline()), spent_ns / 1e9)
    return found


def _role(command: list[str]) -> str:
    modules = [word for word in command if word.startswith("millwheel.")]
    return modules[0].removeprefix("millwheel.") if modules else "driver"
