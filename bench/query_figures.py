"""The published experiments with queries, and Redis itself beside them where it can do the same.

    python -m bench Q [--only Q1 Q4] [--rounds 3] [--quick] [--results FILE]

    Q1  100 connections, one indicator each        Q6  queries while a worker is killed, and stopped
    Q2  the same, 156 indicators a request         Q7  one worker and two
    Q3  what a storm costs the stream              Q8  bytes of a key against its records
    Q4  latency against the number of slices       Q9  as Q1, 16 requests at a time in each
        connection
    Q5  precision against L/H

Q1, Q2, Q4, Q7 and Q9 ask with redis-benchmark, which ends at the first error: a figure means that
all were answered. Every contestant runs once in each round. Ends with a table of medians; each run
is a line in the file of figures.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from redis.crc import key_slot

from bench import query_faults, query_storm
from bench.figures import Figure, append
from bench.machine import machine
from bench.paths import RESULTS, quick_results
from bench.queried_run import KEYS, QueriedRun, queried_run, until
from bench.query_counts import DAY_US, HOUR_US, LEVELS_US, bytes_per_key, precision, rates
from bench.tables import series, table
from millwheel.core.slices.levels import slice_levels
from millwheel.engine.queries.model import Mode
from millwheel.engine.queries.slices import pieces, span_of

CLIENTS = 100
BATCH = 156
"""Indicators of a request: what brings the published rate of requests and that of indicators
together."""

FIRST_KEY = 10**12
"""redis-benchmark writes a random number in 12 digits. With a 1 before it, it is a number without
leading zeros."""

NAME = "clicks.n:1__rand_int__:%s"
WINDOWS = ("10s", "1m", "10m", "1h", "6h", "22h")
_WINDOW_US = (10_000_000, 60_000_000, 600_000_000, HOUR_US, 6 * HOUR_US, 22 * HOUR_US)
_RUN_LEVELS_US = (10_000_000, 60_000_000)  # as in pipelines/queried.yaml
_LIMIT_S = 300.0
Found = Iterator[tuple[str, str, dict[str, float]]]
"""Contestant, variant and figures of each run."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    rounds: int
    requests: int
    records: int
    storm_s: float
    draws: int


def load(
    port: int,
    words: Sequence[str],
    requests: int,
    clients: int = CLIENTS,
    pipelined: int = 1,
    keys: int = KEYS,
) -> str:
    """What redis-benchmark prints of so many requests about ``keys`` keys. RuntimeError when one
    was not answered."""
    from tests.servers.redis import command

    *before, server = command()
    line = [
        *before,
        str(Path(server).with_name("redis-benchmark")),
        "-p",
        str(port),
        "-c",
        str(clients),
    ]
    line += ["-n", str(requests), "-P", str(pipelined), "-r", str(keys), "--csv", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"redis-benchmark ended: {done.stderr[-300:]}")
    return done.stdout


@contextmanager
def filled(size: Size, workers: int = 1) -> Iterator[tuple[QueriedRun, dict[int, list[int]]]]:
    """A run that has the records of a day, and the keys of each port."""
    with tempfile.TemporaryDirectory() as folder, queried_run(Path(folder) / "run", workers) as run:
        rng, now_us = random.Random(3), time.time_ns() // 1000
        times = sorted(now_us - rng.randrange(22 * HOUR_US) for _ in range(size.records))
        lines = [
            b'{"at":%d,"key":%d,"cost":1}\n' % (at_us, FIRST_KEY + rng.randrange(KEYS))
            for at_us in times
        ]
        (run.folder / "in" / "0.jsonl").write_bytes(b"".join(lines))
        ports = keys_of_ports(run.port)
        until(
            lambda: sum(_count(port, keys) for port, keys in ports.items()) == size.records,
            _LIMIT_S,
        )
        yield run, ports


def keys_of_ports(port: int) -> dict[int, list[int]]:
    """The keys that each worker has, as any one of them tells it."""
    with redis.Redis(port=port) as client:
        slots = client.execute_command("CLUSTER SLOTS")
    found: dict[int, list[int]] = {}
    for key in range(FIRST_KEY, FIRST_KEY + KEYS):
        slot = key_slot(b"%d" % key)
        owner = next(int(owner[1]) for first, last, owner, *_ in slots if first <= slot <= last)
        found.setdefault(owner, []).append(key)
    return found


def _count(port: int, keys: Sequence[int]) -> int:
    with redis.Redis(port=port) as client:
        return sum(
            int(each or 0) for each in client.mget([f"clicks.n:{{{key}}}:1d" for key in keys])
        )


@contextmanager
def _redis_itself() -> Iterator[int]:
    from tests.servers.redis import running

    with tempfile.TemporaryDirectory() as folder:
        for server in running(Path(folder)):
            server.client().mset(
                {f"clicks.n:{key}:10m": 750 for key in range(FIRST_KEY, FIRST_KEY + KEYS)}
            )
            yield server.port


def _beside_redis(
    size: Size, words: Sequence[str], requests: int, each: int = 1, pipelined: int = 1
) -> Found:
    """Ours and Redis in turns; the first load of each is not counted."""
    with filled(size) as (run, _), _redis_itself() as other:
        for number in range(size.rounds + 1):
            for name, port in (("millwheel", run.port), ("redis", other)):
                found = rates(load(port, words, requests, pipelined=pipelined), each)
                if number:
                    yield name, "", found


def q1(size: Size) -> Found:
    """100 connections, one indicator each."""
    return _beside_redis(size, ["GET", NAME % "10m"], size.requests)


def q2(size: Size) -> Found:
    """100 connections, 156 indicators in a request."""
    return _beside_redis(
        size, ["MGET", *[NAME % "10m"] * BATCH], max(size.requests // 40, CLIENTS), BATCH
    )


def q3(size: Size) -> Found:
    """Records at half of capacity, with 10,000 queries a second and without."""
    given = argparse.Namespace(
        queries=10_000, connections=50, window="10m", rounds=size.rounds, seconds=size.storm_s
    )
    with tempfile.TemporaryDirectory() as folder, queried_run(Path(folder) / "run", 1) as run:
        query_storm.capacity(run, size.records // 4)  # warm
        rate = query_storm.capacity(run, size.records)
        yield (
            "millwheel",
            "",
            {"capacity_per_s": rate, **query_storm.rounds(run, given, int(rate / 2))},
        )


def accumulators(window_us: int) -> int:
    """How many accumulators an answer reads for a window that ends in the middle of a day, at
    12:34:56."""
    levels, until_us = slice_levels(_RUN_LEVELS_US), 19_000 * DAY_US + 12 * HOUR_US + 2_096_000_000
    return sum(1 for _ in pieces(levels, span_of(levels, window_us, until_us, Mode.COVERING), True))


def q4(size: Size) -> Found:
    """One connection, windows from one slice to most of a day."""
    with filled(size) as (run, _):
        for number in range(size.rounds + 1):
            for window, window_us in zip(WINDOWS, _WINDOW_US, strict=True):
                requests = max(size.requests // 50 // (1 + window_us // HOUR_US), 20)
                found = rates(load(run.port, ["GET", NAME % window], requests, clients=1))
                if number:
                    yield "millwheel", window, {"accumulators": accumulators(window_us), **found}


def q5(size: Size) -> Found:
    """By how much a count is too high."""
    for slices in (1, 2, 12, 288, 8_640):
        yield "millwheel", f"H = {slices} L", precision(slices * LEVELS_US[0], size.draws)


def q6(size: Size) -> Found:
    """A worker killed, and one stopped, with a standby and without."""
    for fault in ("kill", "stop"):
        for standby in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                told = query_faults.case(fault, standby, 2_000, 16, Path(folder) / "run")
            numbers = {
                name: told[name]
                for name in ("answered_percent", "longest_gap_ms", "p50_ms", "p99_ms")
            }
            yield "millwheel", f"{fault}, {'with' if standby else 'without'} a standby", numbers


def q7(size: Size) -> Found:
    """100 connections in all, to one worker and to two: one indicator each, and 156 a request."""
    for workers in (1, 2):
        with filled(size, workers) as (run, ports):
            for each in (1, BATCH):
                for number in range(size.rounds + 1):
                    found = _of_workers(size, run, ports, each)
                    if number:
                        yield "millwheel", f"workers: {workers}, indicators: {each}", found


def _of_workers(
    size: Size, run: QueriedRun, ports: dict[int, list[int]], each: int
) -> dict[str, float]:
    """One load, divided over all workers. ``client_share`` is the part that those who ask have in
    the CPU time of these and the workers."""
    requests = max(size.requests // (1 if each == 1 else 40) // len(ports), CLIENTS)
    before, began_s = _cpu_s(run), time.monotonic()
    with ThreadPoolExecutor(len(ports)) as threads:
        told = list(
            threads.map(
                lambda port: _of_worker(port, ports[port], each, requests, CLIENTS // len(ports)),
                ports,
            )
        )
    took_s = time.monotonic() - began_s
    clients_s, workers_s = (now - then for now, then in zip(_cpu_s(run), before, strict=True))
    return {
        "indicators_per_s": requests * len(ports) * each / took_s,
        "p99_ms": max(figures["p99_ms"] for figures in told),
        "client_share": clients_s / (clients_s + workers_s),
    }


def _of_worker(
    port: int, keys: list[int], each: int, requests: int, clients: int
) -> dict[str, float]:
    names = [f"clicks.n:{key}:10m" for key in (keys * each)[:each]]
    words = ["GET", *names] if each == 1 else ["MGET", *names]
    return rates(load(port, words, requests, clients), each)


def _cpu_s(run: QueriedRun) -> tuple[float, float]:
    """CPU time of clients that have ended, and of the workers."""
    ended = os.times()
    times = [worker.cpu_times() for worker in run.workers()]
    return ended.children_user + ended.children_system, sum(t.user + t.system for t in times)


def q8(size: Size) -> Found:
    """Bytes of the slices of a key for 30 days, at 5m, 1h and 1d."""
    for records in (100, 1_000, 10_000, 100_000, 1_000_000):
        if records <= size.records * 4:
            yield "millwheel", f"{records:,} records", bytes_per_key(records)


def q9(size: Size) -> Found:
    """As Q1, with 16 requests at a time in each connection."""
    return _beside_redis(size, ["GET", NAME % "10m"], size.requests, pipelined=16)


EXPERIMENTS: dict[str, Callable[[Size], Found]] = {
    "Q1": q1, "Q2": q2, "Q3": q3, "Q4": q4, "Q5": q5, "Q6": q6, "Q7": q7, "Q8": q8, "Q9": q9,
}  # fmt: skip


def campaign(name: str, size: Size, file: Path) -> list[Figure]:
    """All runs of one experiment, each in the file as soon as it is known."""
    number, done, counts = uuid4().hex[:12], [], dict[tuple[str, str], int]()
    settings = {"requests": size.requests, "records": size.records, "clients": CLIENTS}
    for contestant, variant, metrics in EXPERIMENTS[name](size):
        run = counts[contestant, variant] = counts.get((contestant, variant), -1) + 1
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        figure = Figure(
            part=name, contestant=contestant, variant=variant, run=run, campaign=number, at=at,
            settings=settings, machine=machine(), metrics=metrics,
        )  # fmt: skip
        append(file, figure)
        done.append(figure)
    return done


def text(name: str, done: Sequence[Figure]) -> str:
    """The table of an experiment."""
    metrics = list(dict.fromkeys(metric for figure in done for metric in figure.metrics))
    rival = "queries_per_s" if any(figure.contestant == "redis" for figure in done) else ""
    load_then = max(figure.machine["load"] for figure in done)
    return f"{name}  {EXPERIMENTS[name].__doc__} Load of the machine: {load_then}\n\n" + table(
        series(done), metrics, rival
    )


def _arguments() -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m bench Q",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS), metavar="NAME"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="each contestant runs once in each (default 3)"
    )
    parser.add_argument("--quick", action="store_true", help="small, figures kept apart")
    parser.add_argument("--results", type=Path, help="another file of figures")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    size = Size(arguments.rounds, 100_000, 300_000, 5, 20_000)
    if arguments.quick:
        size = Size(1, 4_000, 20_000, 1, 500)
    for name in arguments.only:
        file = arguments.results or (quick_results() if arguments.quick else RESULTS)
        print(text(name, campaign(name, size, file)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
