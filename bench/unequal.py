"""Groupings on workers of which one runs a quarter of the time: how much it does, how fast all is
done, and how late.

    python -m bench unequal [--records 40000] [--rounds 1] [--skews hash,pkg,dkg,nag,dag,tag]
                            [--keys 1.1]
                            [--instances 8] [--workers 2] [--waits 300] [--rate 0] [--draw]

In the partial computation (``plugins/costly.py``) each record waits for 300 µs, as for an answer of
something else; with ``--waits 0`` it takes about 100 µs of the processor, which needs a core for
each worker. The computation has as many shards as there are instances, so each worker has an equal
part of them. From the first records on, the second worker is stopped for 30 of 40 ms. Sums and
counts of each run must be those that DuckDB finds in the input.

``slow_share`` is the share of the records that the slow worker added, and ``slow_share_later`` the
same of the second half of the records: a fifth of two workers is in proportion to its speed.
``slowest_and_fastest`` are the rates of its rounds. ``of_hash`` is the rate beside that of whole
keys, which senders group before they send them, so that the work is where the input is read. Files
are read as fast as consumers take them. With ``--rate`` so many records come in a second, and rates
are those of whole runs; then ``lag_ms`` has the mean and the 99th percentile, of the second half,
of how long after its creation a record was added. ``--draw`` writes a picture of the load of each
worker over time (the last round) for docs/skew.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil

from bench.contest import execute, role_of
from bench.contestants import Job, ours
from bench.hot_key import PIPELINE, Rows, expected, results, write
from bench.panels import Line, Scale, panels
from bench.paths import HOUSE
from bench.plugins.costly import drawn

PICTURE = HOUSE / "docs" / "pictures" / "skew_unequal.svg"
SKEWS = "hash,pkg,dkg,nag,dag,w-choices,tag"
STOPPED_S, RUNS_S = 0.03, 0.01
SLOW_SLOT = 1
_TIMEOUT_S = 300.0
_LOOK_S = 0.05
_EACH_US = 500_000
_SLOW, _OTHER = "#9e2a2b", "#1f6f8b"
_PARTITIONS = 4
_GENERATOR = "{generator: {rate: RATE, count: COUNT, partitions: PARTS, factory: 'costly:drawn'}}"
_FILES = '{files: {path: "${input}/*.jsonl", format: "${form}"}}'
_FUNCTION = "{'costly:CountingCost': cost}"


class Slowed(threading.Thread):
    """Lets a worker below this process run a quarter of the time, from the first records that it
    has added on."""

    def __init__(self, counts: Path) -> None:
        super().__init__(daemon=True)
        self._counts = counts
        self._over = threading.Event()
        self.pid = 0

    def run(self) -> None:
        while (process := self._worker()) is None:
            if self._over.wait(_LOOK_S):
                return
        self.pid = process.pid
        try:
            while not self._over.is_set():
                process.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_S)
                process.send_signal(signal.SIGCONT)
                time.sleep(RUNS_S)
        except psutil.NoSuchProcess:
            return

    def end(self) -> None:
        """The run is over."""
        self._over.set()
        self.join()

    def _worker(self) -> psutil.Process | None:
        for child in psutil.Process().children(recursive=True):
            try:
                command = child.cmdline()
            except psutil.Error:
                continue
            if role_of(command) == "workers" and f"--slot {SLOW_SLOT}" in " ".join(command):
                return child if (self._counts / str(child.pid)).exists() else None
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """What all runs do. ``rate``: records/s, 0 for files, which are read as fast as that goes."""

    folder: Path
    records: int
    keys: str
    instances: int
    workers: int
    waits_us: int
    rate: int

    @property
    def env(self) -> dict[str, str]:
        """What the plug-ins read."""
        each = str(self.rate // _PARTITIONS)
        return {"BENCH_WAITS": str(self.waits_us), "BENCH_ZIPF": self.keys, "BENCH_EACH": each}

    def right(self) -> Rows:
        """The results; writes the input where that is files."""
        if not self.rate:
            write(self.folder / "in", self.records, self.keys)
            return expected(self.folder / "in")
        os.environ.update(self.env)
        found = defaultdict[tuple[int, int], list[int]](list)
        for partition in range(_PARTITIONS):
            for index in range(self.records // _PARTITIONS):
                row = drawn(index, partition)
                found[row["k"], row["ts"] // 60_000 * 60_000_000].append(row["cost"])
        return {(*key, len(costs), sum(costs)) for key, costs in found.items()}

    def text(self, skew: str) -> str:
        """The pipeline."""
        skewed = (
            f"{skew if skew == 'hash' else f'{skew}({self.instances})'}\n    shards:"
            f" {self.instances}"
        )
        text = PIPELINE.replace("KEY", "k").replace("FUNCTION", _FUNCTION).replace("SKEW", skewed)
        if self.rate:
            text = text.replace(_FILES, _GENERATOR)
        counted = str(self.records // _PARTITIONS * _PARTITIONS)
        return (
            text.replace("RATE", str(self.rate))
            .replace("COUNT", counted)
            .replace("PARTS", str(_PARTITIONS))
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run showed."""

    seconds: float
    share: float
    later: float
    lags_ms: np.ndarray[Any, np.dtype[np.float64]]
    slow_us: np.ndarray[Any, np.dtype[np.int64]]
    """When the slow worker added each of its records, and the others theirs."""
    others_us: np.ndarray[Any, np.dtype[np.int64]]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench unequal", description=__doc__)
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--skews", default=SKEWS, help="some groupings, with commas")
    parser.add_argument(
        "--keys", default="1.1", help="an exponent of Zipf's law; of files also even or hot"
    )
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--waits", type=int, default=300, help="µs a record; 0: it takes the processor"
    )
    parser.add_argument("--rate", type=int, default=0, help="records a second; 0: files")
    parser.add_argument("--draw", action="store_true", help="write the picture of docs/skew.md")
    arguments = parser.parse_args()
    duckdb.execute("SET enable_progress_bar = false")
    runs = defaultdict[str, list[Seen]](list)
    with tempfile.TemporaryDirectory() as name:
        sizes = arguments.instances, arguments.workers, arguments.waits, arguments.rate
        work = Work(Path(name), arguments.records, arguments.keys, *sizes)
        right = work.right()
        for _ in range(arguments.rounds):
            for skew in arguments.skews.split(","):
                runs[skew].append(measure(work, skew, right))
                print(json.dumps(figure(skew, runs, arguments.records)), flush=True)
    if arguments.draw:
        PICTURE.write_text(
            picture({skew: each[-1] for skew, each in runs.items()}), encoding="utf-8"
        )
    return 0


def picture(runs: Mapping[str, Seen]) -> str:
    """Thousands of records/s of both workers over time, on one scale for all runs: it ends with the
    longest."""
    began = {skew: min(each.slow_us.min(), each.others_us.min()) for skew, each in runs.items()}
    lasted = {
        skew: max(each.slow_us.max(), each.others_us.max()) - began[skew]
        for skew, each in runs.items()
    }
    longest_s = max(lasted.values()) / 1e6
    charts = {}
    for skew, each in runs.items():
        until_us = lasted[skew]
        drawn_us = {_SLOW: each.slow_us, _OTHER: each.others_us}
        charts[skew] = [
            Line(_per_ms(when - began[skew], until_us), color, end=until_us / 1e6 / longest_s)
            for color, when in drawn_us.items()
        ]
    highest = max(max(line.values) for lines in charts.values() for line in lines)
    most = math.ceil(highest * 2) / 2
    scale = Scale(most, most / 2, f"{longest_s:.0f} s")
    legend = {"slow worker": _SLOW, "the other": _OTHER, "up: thousand records/s": ""}
    return panels("Load of each of two workers over time", charts, scale, legend)


def _per_ms(when_us: np.ndarray[Any, np.dtype[np.int64]], until_us: int) -> list[float]:
    found, _ = np.histogram(when_us, max(1, round(until_us / _EACH_US)), (0, until_us))
    return [float(count) / (until_us / len(found) / 1e3) for count in found]


def figure(skew: str, runs: Mapping[str, Sequence[Seen]], records: int) -> dict[str, object]:
    """The medians of the runs of a grouping so far."""
    mine, whole = runs[skew], runs.get("hash", ())
    found: dict[str, object] = {
        "skew": skew,
        "slow_share": round(statistics.median(each.share for each in mine), 2),
        "slow_share_later": round(statistics.median(each.later for each in mine), 2),
        "records_per_s": round(statistics.median(records / each.seconds for each in mine)),
    }
    if len(mine) > 1:
        found["slowest_and_fastest"] = [
            round(records / by(each.seconds for each in mine)) for by in (max, min)
        ]
    if len(whole) >= len(mine):
        ratios = [theirs.seconds / each.seconds for each, theirs in zip(mine, whole, strict=False)]
        found["of_hash"] = round(statistics.median(ratios), 2)
    if lags := [each.lags_ms for each in mine if len(each.lags_ms)]:
        found["lag_ms"] = [
            round(statistics.median(by(each) for each in lags)) for by in (np.mean, p99)
        ]
    return found


def p99(found: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The 99th percentile."""
    return float(np.quantile(found, 0.99))


def measure(work: Work, skew: str, right: Rows) -> Seen:
    """One run, checked."""
    folder, counts = work.folder / "run", work.folder / "run" / "counts"
    counts.mkdir(parents=True)
    (folder / "unequal.yaml").write_text(work.text(skew))
    given = None if work.rate else work.folder / "in"
    # what groupings do, not what moves shards
    start = ours(str(folder / "unequal"), work.workers, more=("--no-balance",))
    run = start(Job(folder, given, "jsonl", _TIMEOUT_S))
    slowed = Slowed(counts)
    slowed.start()
    outcome = execute(replace(run, env={**run.env, **work.env, "BENCH_COUNTS": str(counts)}))
    slowed.end()
    if outcome.error or (outcome.seconds is None and not work.rate):
        sys.exit(f"{skew}: {outcome.error or outcome.tail}")
    if set(results(folder / "out")) != right:
        sys.exit(f"{skew}: other rows than they should be")
    share = share_of(
        slowed.pid,
        {int(path.name): int(path.read_text()) for path in counts.iterdir() if not path.suffix},
    )
    noted = {int(path.stem): np.fromfile(path, np.int64) for path in counts.glob("*.lags")}
    later, lags = seen_later(noted, slowed.pid)
    shutil.rmtree(folder)
    slow_us = noted.pop(slowed.pid)[1::2]
    others_us = np.concatenate([each[1::2] for each in noted.values()])
    return Seen(
        outcome.seconds or outcome.wall_s,
        share,
        later,
        lags / 1000 if work.rate else lags[:0],
        slow_us,
        others_us,
    )


def share_of(slow: int, added: dict[int, int]) -> float:
    """The share of one process in what all have added; the worker must have been there to be
    slowed."""
    if slow not in added:
        sys.exit("no worker was slowed: the run was too short")
    return added[slow] / sum(added.values())


def seen_later(
    noted: Mapping[int, np.ndarray[Any, np.dtype[np.int64]]], slow: int
) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]]:
    """Of the half of the records that were added last: the share of the slow process. Of that with
    the later half of the timestamps: how much longer after its timestamp each was added than the
    quickest of all records, in µs."""
    pairs = {pid: each.reshape(-1, 2) for pid, each in noted.items()}
    whole = np.concatenate(list(pairs.values()))
    half_at = np.quantile(whole[:, 1], 0.5)
    later = {pid: int(np.count_nonzero(each[:, 1] >= half_at)) for pid, each in pairs.items()}
    lags = whole[:, 1] - whole[:, 0]
    late = lags[whole[:, 0] >= np.quantile(whole[:, 0], 0.5)] - lags.min()
    return later.get(slow, 0) / sum(later.values()), late.astype(np.float64)
