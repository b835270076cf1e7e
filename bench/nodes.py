"""What a part costs: pipelines of 1 and of 32 nodes, a sink each, with next to no records.

    python -m bench nodes [--nodes 1 32] [--rounds 3] [--against CHECKOUT]

For each: seconds from the command to the first row of every sink; memory of all processes (PSS)
then; seconds from the kill of a worker until every sink has a row of a record that was written
after the kill (the longer time of both workers); and seconds from start to end of a run over 1,000
records. ``--against`` names another checkout with an environment of its own; both take turns. Two
workers, plain processes. Prints medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.paths import HOUSE

RECORDS = 1_000
_KEYS = 50
_LOOK_S = 0.01
_WRITE_S = 0.1  # 500 records/s: what is measured is the way back, not a backlog
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, and MB of all processes."""

    first_row: float
    memory_mb: float
    whole_again: float
    start_to_end: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench nodes", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    houses = [HOUSE] + ([arguments.against] if arguments.against else [])
    found: dict[tuple[int, Path], list[Costs]] = {}
    for _ in range(arguments.rounds):
        for nodes in arguments.nodes:
            for house in houses:
                command = [str(house / ".venv" / "bin" / "millwheel")]
                with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
                    measured = Bench(command, nodes, Path(folder)).costs()
                found.setdefault((nodes, house), []).append(measured)
    print("nodes  first row s  memory MB  whole again s  start to end s  checkout")
    for (nodes, house), costs in sorted(found.items(), key=lambda item: item[0][0]):
        middle = [median(getattr(each, name) for each in costs) for name in Costs.__slots__]
        print(
            f"{nodes:5}  {middle[0]:11.2f}  {middle[1]:9.0f}  {middle[2]:13.2f}  {middle[3]:14.2f} "
            f" {house}"
        )
    return 0


class Bench:
    """One pipeline of a checkout."""

    def __init__(self, command: Sequence[str], nodes: int, folder: Path, workers: int = 2) -> None:
        self._command = command
        self._nodes = nodes
        self._folder = folder
        self._workers = workers

    def costs(self, kills: int = 2) -> Costs:
        """Run it without an end, kill ``kills`` of the workers, one after the other, and run it
        over a file with an end."""
        with self._running("endless", "follow: true, format: jsonl") as (process, began):
            source = (self._folder / "endless" / "in.jsonl").open("a")
            first_row = self._rows_everywhere(source, process, began)
            memory = sum(map(_memory, _family(process))) / 1e6
            whole = 0.0
            for worker in _workers(process)[:kills]:
                os.kill(worker.pid, signal.SIGKILL)
                whole = max(whole, self._rows_everywhere(source, process, time.time()))
        with self._running("bounded", "format: jsonl") as (process, began):
            if process.wait(_PATIENCE_S):
                raise SystemExit(self._ended("bounded", process))
            end = time.time() - began
        return Costs(first_row, memory, whole, end)

    @contextmanager
    def _running(self, name: str, source: str) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
        folder = self._folder / name
        folder.mkdir()
        (folder / "p.yaml").write_text(_pipeline(self._nodes, source))
        (folder / "in.jsonl").write_text("".join(_lines(RECORDS, time.time())))
        command = [*self._command, "run", str(folder / "p.yaml"), "--root", str(folder / "root")]
        command += [
            "--set",
            f"folder={folder}",
            "--workers",
            str(self._workers),
            "--launcher",
            "processes",
        ]
        began = time.time()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield process, began
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE_S)
            shutil.rmtree(folder / "root", ignore_errors=True)

    def _ended(self, name: str, process: subprocess.Popen[bytes]) -> str:
        said = (self._folder / name / "log").read_text(encoding="utf-8", errors="replace")
        return f"the run ended with {process.poll()}: {said[-1000:].strip()}"

    def _rows_everywhere(
        self, source: object, process: subprocess.Popen[bytes], since: float
    ) -> float:
        """Seconds from ``since`` until each sink has a row of a record that was written after
        it."""
        missing = {self._folder / "endless" / f"o{number}" for number in range(self._nodes)}
        seen: set[Path] = set()
        until, written = since + _PATIENCE_S, 0.0
        while missing:
            if process.poll() is not None or time.time() > until:
                raise SystemExit(
                    f"no rows in {len(missing)} sinks; {self._ended('endless', process)}"
                )
            if time.time() > written + _WRITE_S:
                written = time.time()
                source.writelines(_lines(_KEYS, written))  # type: ignore[attr-defined]
                source.flush()  # type: ignore[attr-defined]
            time.sleep(_LOOK_S)
            missing -= {folder for folder in missing if _has_row(folder, seen, since)}
        return time.time() - since


def _has_row(folder: Path, seen: set[Path], since: float) -> bool:
    fresh = [path for path in folder.glob("*.jsonl") if path not in seen]
    seen.update(fresh)
    return any(
        json.loads(line)["at"] > since for path in fresh for line in path.read_text().splitlines()
    )


def _lines(count: int, at: float) -> Sequence[str]:
    stamp = time.time_ns() // 1000
    return [
        json.dumps({"k": number % _KEYS, "at": at, "ts": stamp}) + "\n" for number in range(count)
    ]


def _pipeline(nodes: int, source: str) -> str:
    text = "pipeline: nodes\nstreams:\n  hits:\n"
    text += (
        f"    source: {{files: {{path: '${{folder}}/in.jsonl', {source}}}}}\n    timestamp:"
        " ts\ncomputations:\n"
    )
    for number in range(nodes):
        text += (
            f"  c{number}: {{input: {{hits: {{key: k}}}}, map: {{k: k, at: at}}, output:"
            f" o{number}}}\n"
        )
    text += "sinks:\n"
    for number in range(nodes):
        text += (
            f"  o{number}: {{files: {{path: '${{folder}}/o{number}', format: jsonl, flush:"
            " 20ms}}\n"
        )
    return text


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    driver = psutil.Process(process.pid)
    return [driver, *driver.children(recursive=True)]


def _memory(process: psutil.Process) -> int:
    """Its share of the memory that it has, in bytes; where the system does not divide what is
    shared (gVisor), all."""
    found = process.memory_full_info()
    return int(found.pss or found.rss)


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [each for each in _family(process) if "millwheel.engine.workers" in each.cmdline()]
