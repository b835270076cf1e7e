"""Groupings on two workers of which one runs a quarter of the time: how much it does, and how fast all is done.

    python -m bench unequal [--records 120000] [--rounds 1] [--skews hash,pkg,dkg,nag,dag,tag] [--keys 1.1]
                            [--instances 8]

Each record takes about 100 µs in the partial computation (``plugins/costly.py``), which has as many shards as
there are instances, so each worker has half of them. From the first records on, the second worker is stopped for 30 of
40 ms. Sums and counts of each run must be those that DuckDB finds in the input. ``slow_share`` is the share of the
records that the slow worker added: a fifth is in proportion to its speed. ``of_hash`` is the rate beside that of whole
keys, which senders group before they send them, so that the work is where the input is read. Needs two cores for the
workers alone: where a worker waits for a core anyway, being stopped changes little.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import duckdb
import psutil

from bench.contest import Outcome, execute, role_of
from bench.contestants import Job, ours
from bench.hot_key import PIPELINE, Rows, expected, results, write

SKEWS = "hash,pkg,dkg,nag,dag,w-choices,tag"
STOPPED_S, RUNS_S = 0.03, 0.01
SLOW_SLOT = 1
_TIMEOUT_S = 300.0
_LOOK_S = 0.05
_FUNCTION = "{'costly:CountingCost': cost}"


class Slowed(threading.Thread):
    """Lets a worker below this process run a quarter of the time, from the first records that it has added on."""

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


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench unequal", description=__doc__)
    parser.add_argument("--records", type=int, default=120_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--skews", default=SKEWS, help="some groupings, with commas")
    parser.add_argument("--keys", default="1.1", help="even, hot, or an exponent of Zipf's law")
    parser.add_argument("--instances", type=int, default=8)
    given = parser.parse_args()
    duckdb.execute("SET enable_progress_bar = false")
    rates, shares = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "in", given.records, given.keys)
        right = expected(folder / "in")
        for _ in range(given.rounds):
            for skew in given.skews.split(","):
                outcome, share = measure(folder, skew, given.instances, right)
                rates[skew].append(given.records / (outcome.seconds or 1))
                shares[skew].append(share)
    for skew, found in rates.items():
        figure: dict[str, object] = {
            "skew": skew,
            "slow_share": round(statistics.median(shares[skew]), 2),
            "records_per_s": round(statistics.median(found)),
        }
        if whole := rates.get("hash"):
            figure["of_hash"] = round(statistics.median(a / b for a, b in zip(found, whole, strict=True)), 2)
        print(json.dumps(figure), flush=True)
    return 0


def measure(folder: Path, skew: str, instances: int, right: Rows) -> tuple[Outcome, float]:
    """One run, checked, and the share of the slow worker."""
    work, counts = folder / "run", folder / "run" / "counts"
    counts.mkdir(parents=True)
    skewed = f"{skew if skew == 'hash' else f'{skew}({instances})'}\n    shards: {instances}"
    text = PIPELINE.replace("KEY", "k").replace("FUNCTION", _FUNCTION).replace("SKEW", skewed)
    (work / "unequal.yaml").write_text(text)
    run = ours(str(work / "unequal"), 2)(Job(work, folder / "in", "jsonl", _TIMEOUT_S))
    slowed = Slowed(counts)
    slowed.start()
    outcome = execute(replace(run, env={**run.env, "BENCH_COUNTS": str(counts)}))
    slowed.end()
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{skew}: {outcome.error or outcome.tail}")
    if set(results(work / "out")) != right:
        sys.exit(f"{skew}: other rows than DuckDB's")
    share = share_of(slowed.pid, {int(path.name): int(path.read_text()) for path in counts.iterdir()})
    shutil.rmtree(work)
    return outcome, share


def share_of(slow: int, added: dict[int, int]) -> float:
    """The share of one process in what all have added; the worker must have been there to be slowed."""
    if slow not in added:
        sys.exit("no worker was slowed: the run was too short")
    return added[slow] / sum(added.values())
