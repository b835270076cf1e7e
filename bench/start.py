"""Start to end of three records on plain processes, and where the time goes; beside ``import
bytewax`` and Bytewax.

    python -m bench start [--rounds 5] [--ours-only] [--spark]

Prints one JSON line per contestant: the median of the seconds from start to end, and of the parts
of ours and its processor time. Contestants run in turns, because other work on the machine disturbs
them all alike then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from bench.contestants import BYTEWAX
from bench.environments import UnavailableEnvironmentError, python_of
from bench.paths import PEERS

_PIPELINE = """
pipeline: visits
streams:
  visits: {source: {files: {path: "${input}", format: jsonl}}, timestamp: at}
computations:
  by_page: {input: {visits: {key: page}}, window: {tumbling: 1m}, aggregate: {n: count},
    output: by_page}
sinks:
  by_page: {files: {path: "${output}"}}
"""
_RECORDS = "".join(
    f'{{"at": "2026-01-01T09:0{minute}:00Z", "page": "/"}}\n' for minute in (0, 1, 5)
)
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
_LONGEST_S = 120

Contestant = Callable[[Path], Mapping[str, float]]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--spark", action="store_true", help="also ours on Spark, with its JVM")
    arguments = parser.parse_args()
    contestants = {"processes": ours("processes")}
    if arguments.spark:
        contestants["spark"] = ours("spark")
    if not arguments.ours_only:
        contestants |= _peers()
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in contestants}
    for _ in range(arguments.rounds):
        for name, run in contestants.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(run(Path(folder)))
    for name, rounds in found.items():
        parts = {
            part: round(statistics.median(each[part] for each in rounds), 3) for part in rounds[0]
        }
        print(json.dumps({"who": name, "rounds": len(rounds), **parts}), flush=True)
    return 0


def ours(launcher: str) -> Contestant:
    """A run of ours in a new folder. Its parts: until the driver has taken the root and begins to
    start processes, until the master leads, on Spark until its first task begins (JVMs, their
    session and executors, and pyspark's processes), until the last range table is written, until
    the last row is visible, until the command has ended."""

    def run(folder: Path) -> Mapping[str, float]:
        (folder / "p.yaml").write_text(_PIPELINE)
        (folder / "in.jsonl").write_text(_RECORDS)
        command = [
            sys.executable,
            "-m",
            "millwheel",
            "run",
            "p.yaml",
            "--launcher",
            launcher,
            "--root",
            "root",
        ]
        command += ["--set", "input=in.jsonl", "--set", "output=out"]
        began_cpu_s = _cpu_s()
        began_s, ended_s = _timed(command, folder)
        cpu_s = _cpu_s() - began_cpu_s
        rows = list((folder / "out").glob("*.jsonl"))
        assert sum(len(path.read_text().splitlines()) for path in rows) == 3, (
            f"{folder}: three rows are missing"
        )
        stamps = _stamps(folder / "root" / "logs" / "master.log")
        marks = {
            "driver_s": _born(folder),
            "leads_s": stamps[0],
            **(_tasks(folder) if launcher == "spark" else {}),
            "tables_s": stamps[-1],
            "rows_s": max(path.stat().st_mtime for path in rows),
            "end_s": ended_s,
        }
        return {"seconds": ended_s - began_s, "cpu_s": cpu_s, **_steps(began_s, marks)}

    return run


def _cpu_s() -> float:
    """The processor time of all that has ended below us."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _born(folder: Path) -> float:
    """When the driver asked for its first process, which is when the log of the master came to
    be."""
    return (folder / "root" / "logs" / "master.out").stat().st_mtime


def _tasks(folder: Path) -> dict[str, float]:
    """When the first task asked for its worker, which is when the worker's output came to be:
    nothing is printed to it."""
    return {
        "tasks_s": min(
            path.stat().st_mtime for path in (folder / "root" / "logs").glob("worker-*.out")
        )
    }


def _stamps(log: Path) -> list[float]:
    """The times (s since 1970) of the lines of a log."""
    found = [_STAMP.match(line) for line in log.read_text().splitlines()]
    return [
        datetime.strptime(each[1], "%Y-%m-%d %H:%M:%S,%f").timestamp() for each in found if each
    ]


def _steps(began_s: float, marks: Mapping[str, float]) -> dict[str, float]:
    """How long each part took. Marks of files are a few milliseconds coarse, so none is taken below
    nothing."""
    steps, before_s = {}, began_s
    for name, at_s in marks.items():
        steps[name] = max(0.0, at_s - before_s)
        before_s = max(before_s, at_s)
    return steps


def _peers() -> dict[str, Contestant]:
    try:
        python = python_of(BYTEWAX)
    except UnavailableEnvironmentError as error:
        print(f"without Bytewax: {error}", file=sys.stderr)
        return {}

    def imports(folder: Path) -> Mapping[str, float]:
        began_s, ended_s = _timed([python, "-c", "import bytewax"], folder)
        return {"seconds": ended_s - began_s}

    def runs(folder: Path) -> Mapping[str, float]:
        shutil.copy(PEERS / "bytewax_three.py", folder)
        (folder / "in.jsonl").write_text(_RECORDS)
        began_s, ended_s = _timed([python, "-m", "bytewax.run", "bytewax_three:flow"], folder)
        assert (folder / "out.jsonl").read_text().count("\n") == 3, (
            f"{folder}: three rows are missing"
        )
        return {"seconds": ended_s - began_s}

    return {"import bytewax": imports, "bytewax": runs}


def _timed(command: list[str], folder: Path) -> tuple[float, float]:
    """When a command began and ended, s since 1970."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(folder)]),
    }
    began_s = time.time()
    said = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LONGEST_S
    )
    ended_s = time.time()
    assert said.returncode == 0, said.stderr
    return began_s, ended_s
