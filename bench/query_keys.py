"""Many keys at rest: what a worker holds in memory and on disk while they come, and how fast they
answer then.

    python -m bench query_keys [--keys 10000000] [--records 2] [--requests 50000]

One worker; each key has ``--records`` records, spread over 30 days, in slices of 5m, 1h and 1d.
First the records, as fast as they go; the memory of the worker is noted after each tenth of them.
Then redis-benchmark with 100 connections asks for the 30 days of random keys, and for a day of
them. Ends with a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.queried_run import QueriedRun, queried_run, until
from bench.query_counts import DAY_US, rates
from bench.query_figures import FIRST_KEY, NAME, load

_CHUNK = 200_000
_STRIDE = 7_368_787  # a prime: keys come in no order
_LIMIT_S = 1_200.0


def write(folder: Path, keys: int, records: int) -> None:
    """The input, as one file that appears at once. Its newest record is of now."""
    total, now_us = keys * records, time.time_ns() // 1000
    step_us = 30 * DAY_US // total
    path = folder / "keys.tmp"
    with path.open("wb") as file:
        for first in range(0, total, _CHUNK):
            some = range(first, min(first + _CHUNK, total))
            file.write(
                b"".join(
                    b'{"at":%d,"key":%d,"cost":1}\n'
                    % (now_us - (total - n) * step_us, FIRST_KEY + n * _STRIDE % keys)
                    for n in some
                )
            )
    path.rename(folder / "keys.jsonl")


def applied(run: QueriedRun) -> int:
    """The records so far, as the run says."""
    found = re.findall(
        r"^queried: ([0-9,]+) records", (run.folder / "said.txt").read_text(), re.MULTILINE
    )
    return int(found[-1].replace(",", "")) if found else 0


def disk_mb(folder: Path) -> float:
    """What lies below a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 1e6


def held(run: QueriedRun, total: int) -> list[float]:
    """The memory of the worker (MB) after each tenth of the records."""
    [worker] = run.workers()
    found: list[float] = []
    for tenth in range(1, 11):
        until(lambda due=total * tenth // 10: applied(run) >= due, _LIMIT_S)  # type: ignore[misc]
        found.append(round(psutil.Process(worker.pid).memory_info().rss / 1e6))
        print(f"{tenth * 10} % of {total:,} records: {found[-1]} MB", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench query_keys", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--records", type=int, default=2)
    parser.add_argument("--requests", type=int, default=50_000)
    arguments = parser.parse_args(sys.argv[1:])
    total = arguments.keys * arguments.records
    with (
        tempfile.TemporaryDirectory() as folder,
        queried_run(Path(folder) / "run", 1, pipeline="many_keys.yaml") as run,
    ):
        began_s = time.monotonic()
        write(run.folder / "in", arguments.keys, arguments.records)
        written_s = time.monotonic()
        memory_mb = held(run, total)
        took_s = time.monotonic() - written_s
        asked = {}
        for window in ("30d", "1d"):
            load(run.port, ["GET", NAME % window], arguments.requests // 10, keys=arguments.keys)
            asked[window] = rates(
                load(run.port, ["GET", NAME % window], arguments.requests, keys=arguments.keys)
            )
        [worker] = run.workers()
        found = {
            "keys": arguments.keys,
            "records": total,
            "records_per_s": round(total / took_s),
            "written_s": round(written_s - began_s, 1),
            "memory_mb": memory_mb,
            "memory_asked_mb": round(psutil.Process(worker.pid).memory_info().rss / 1e6),
            "disk_mb": round(disk_mb(run.folder / "root")),
            "asked": asked,
        }
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
