"""What many kept rows cost a join without windows: Nexmark's q20 with auctions that nobody forgets.

    python -m bench nexmark-kept [--auctions 100000 --auctions 10000000] [--bids 400000]

All auctions are of the category that is chosen, and are read first; then come bids for auctions of
all ages, each of which gives a row. Prints a line for each number of auctions: rows per second from
the first look at the bids to the last row, the memory of the largest worker behind the auctions and
behind the bids, and the size of the root. Ten million auctions are 2 GB of input.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.nexmark.queries import QUERIES
from bench.nexmark.query import FIELDS
from bench.paths import HOUSE
from bench.soak import sample, size_of

_SIZES = (100_000, 10_000_000)
_BEGIN_MS = 1_795_392_000_000
_PER_MS = 100  # auctions in a ms, so that all of them lie within two minutes
_DESCRIPTION = "d" * 80
_EXTRA = "e" * 30
_LOOK_S = 0.5
_SETTLE_S = 5.0  # for the last commits of the auctions
_TIMEOUT_S = 1_800.0
_MB = 1_000_000
_TAIL = 2_000  # letters of a log


@dataclass(frozen=True, slots=True)
class Kept:
    """Memory and sizes in MB."""

    auctions: int
    per_s: float
    loaded_mb: float
    joined_mb: float
    root_mb: float

    def __str__(self) -> str:
        return (
            f"{self.auctions:,} auctions kept: {self.per_s:,.0f} rows/s; a worker has"
            f" {self.loaded_mb:,.0f} MB behind the auctions and {self.joined_mb:,.0f} MB behind the"
            f" bids, the root {self.root_mb:,.0f} MB"
        )


def main() -> int:
    options = _parser().parse_args()
    found = []
    for auctions in options.auctions or _SIZES:
        with tempfile.TemporaryDirectory(prefix="millwheel-kept-", dir=options.folder) as made:
            found.append(measured(Path(made), auctions, options.bids, options.workers))
        print(found[-1], flush=True)
    if len(found) > 1:
        print(f"the last at {found[-1].per_s / found[0].per_s:.2f} times the rate of the first")
    return 0


def measured(folder: Path, auctions: int, bids: int, workers: int) -> Kept:
    """One run. RuntimeError if it ends by itself or takes too long."""
    for name in ("auctions", "bids", "waiting"):
        (folder / name).mkdir()
    _write(folder / "auctions", _auctions(auctions))
    _write(folder / "waiting", _bids(auctions, bids))
    file = folder / "kept.yaml"
    file.write_text(pipeline(folder))
    root = folder / "root"
    command = [sys.executable, "-m", "millwheel", "run", str(file), "--launcher", "processes"]
    command += ["--workers", str(workers), "--root", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait(run, folder, lambda: _taken(root, environment) >= auctions)
            time.sleep(_SETTLE_S)
            loaded = sample(run, root)
            rows, began_s = _Rows(folder / "out"), time.monotonic()
            for path in (folder / "waiting").iterdir():
                path.rename(folder / "bids" / path.name)
            _wait(run, folder, lambda: rows.count() >= bids)
            seconds = time.monotonic() - began_s
            joined = sample(run, root)
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait()
    if rows.count() != bids:
        raise RuntimeError(f"{bids} bids gave {rows.count()} rows")
    return Kept(auctions, bids / seconds, _most(loaded), _most(joined), size_of(root) / _MB)


def pipeline(folder: Path) -> str:
    """q20 over files that are followed."""
    streams = "".join(
        f"  {kind}s:\n"
        f"    source:\n"
        f'      files: {{path: "{folder}/{kind}s/*.jsonl", format: jsonl, follow: true}}\n'
        f"    timestamp: {{field: dateTime, unit: ms}}\n"
        f"    fields: {{{FIELDS[kind]}}}\n"
        for kind in ("auction", "bid")
    )
    lines = QUERIES["q20"].computations.strip().splitlines()
    computations = "\n".join(f"  {line}" for line in lines)
    sink = f"sinks: {{rows: {{files: {{path: {folder}/out, format: jsonl}}}}}}"
    return f"pipeline: kept\nstreams:\n{streams}computations:\n{computations}\n{sink}\n"


def _auctions(count: int) -> Iterator[str]:
    for number in range(count):
        time_ms = _BEGIN_MS + number // _PER_MS
        yield (
            f'{{"id":{number},"itemName":"item {number}","description":"{_DESCRIPTION}",'
            f'"initialBid":{number % 1000},"reserve":{number % 3000},"dateTime":{time_ms},'
            f'"expires":{time_ms + 100_000},"seller":{number % 5000},"category":10,"extra":"x"}}\n'
        )


def _bids(auctions: int, count: int) -> Iterator[str]:
    chance = random.Random(1)
    begin_ms = _BEGIN_MS + auctions // _PER_MS + 1
    for number in range(count):
        yield (
            f'{{"auction":{chance.randrange(auctions)},"bidder":{number % 1000},'
            f'"price":{100 + number},"channel":"Google","url":"https://x/y",'
            f'"dateTime":{begin_ms + number // 10},"extra":"{_EXTRA}"}}\n'
        )


def _write(folder: Path, lines: Iterator[str]) -> None:
    """To two files in turn."""
    with (folder / "0.jsonl").open("w") as even, (folder / "1.jsonl").open("w") as odd:
        for number, line in enumerate(lines):
            (odd if number % 2 else even).write(line)


def _wait(run: subprocess.Popen[bytes], folder: Path, done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _TIMEOUT_S
    while not done():
        if run.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(
                f"the run has not come so far: {(folder / 'log').read_text()[-2_000:]}"
            )
        time.sleep(_LOOK_S)


def _taken(root: Path, environment: Mapping[str, str]) -> int:
    """How many records all sources have taken; 0 while nobody can tell."""
    command = [sys.executable, "-m", "millwheel", "status", str(root), "--json"]
    told = subprocess.run(command, env=environment, capture_output=True)
    return int(json.loads(told.stdout)["records_in"]) if told.returncode == 0 else 0


class _Rows:
    """Counts the lines below a folder, and reads no byte twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._lines = 0

    def count(self) -> int:
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                more = file.read()
            self._read[path] = self._read.get(path, 0) + len(more)
            self._lines += more.count(b"\n")
        return self._lines


def _most(found: Mapping[str, dict[str, float]]) -> float:
    return max(found["rss_mb"].values(), default=0.0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench nexmark-kept",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--auctions", type=int, action="append", help="may be given more than once")
    parser.add_argument("--bids", type=int, default=400_000, help="(400,000)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--folder", help="for input, root and results; a temporary one")
    return parser
