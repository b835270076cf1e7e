"""What a storm of queries costs the stream: records applied a second, with 10,000 queries a second
and without.

    python -m bench query_storm [--queries 10000] [--connections 50] [--window 10m] [--rounds 3]
                                [--seconds 5] [--share 0.5] [--folder DIR]

One worker. First its capacity: a file is written at once, and the time is taken until all of it can
be asked. Then records flow in at ``--share`` of that, in rounds of calm and storm in turn; the loss
is that of the medians. Clients are a process of their own: each connection sends a few GETs with a
window of ``--window`` every 20 ms, answered or not. Ends with a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.queried_run import KEYS, QueriedRun, Writer, asking_workers, queried_run, until
from bench.stats import quantile
from millwheel.tools.gateway.questions import AskedQuestion, asking_of

_TICK_S = 0.02
_FILE_RECORDS = 300_000
_SETTLE_S = 1.0
_Told = Any  # a queue of figures of the clients


def applied(run: QueriedRun) -> int:
    """The records that can be asked now."""

    async def ask() -> int:
        workers = asking_workers()
        asked = [
            asking_of(AskedQuestion(indicator="clicks.n", key=key, window="1d"), False, run.known)
            for key in range(KEYS)
        ]
        await workers.ask(asked, 20.0)
        workers.links.close()
        await asyncio.sleep(0)
        return sum(
            json.loads(each.reply)["values"]["n"] for each in asked if isinstance(each.reply, bytes)
        )

    return asyncio.run(ask())


async def _connection(
    port: int, burst: int, window: bytes, over: Event, waits_s: list[float]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent: asyncio.Queue[float] = asyncio.Queue()
    reading = asyncio.ensure_future(_replies(reader, burst, sent, waits_s))
    rng, next_s = random.Random(port), time.monotonic() + random.random() * _TICK_S
    while not over.is_set():
        await asyncio.sleep(max(next_s - time.monotonic(), 0))
        next_s += _TICK_S
        sent.put_nowait(time.monotonic())
        writer.write(
            b"".join(
                b"GET clicks.n:%d:%b\r\n" % (rng.randrange(KEYS), window) for _ in range(burst)
            )
        )
    await asyncio.wait([reading], timeout=0.5)  # what is on its way
    reading.cancel()
    writer.close()


async def _replies(
    reader: asyncio.StreamReader, burst: int, sent: asyncio.Queue[float], waits_s: list[float]
) -> None:
    while True:
        began_s = await sent.get()
        for _ in range(burst):
            head = await reader.readline()
            if not head:
                raise ConnectionError("the worker ended a connection")
            if head[:1] == b"$":
                await reader.readline()
        waits_s += [time.monotonic() - began_s] * burst


def _clients(
    port: int, arguments: argparse.Namespace, begun: Event, over: Event, told: _Told
) -> None:
    """A process of clients, until ``over``."""
    waits_s: list[float] = []
    burst = max(round(arguments.queries * _TICK_S / arguments.connections), 1)
    window = arguments.window.encode()

    async def run() -> None:
        await asyncio.gather(
            *(_connection(port, burst, window, over, waits_s) for _ in range(arguments.connections))
        )

    begun.set()
    began_s = time.monotonic()
    asyncio.run(run())
    told.put(
        (
            len(waits_s) / (time.monotonic() - began_s),
            sorted(waits_s)[:: max(len(waits_s) // 10_000, 1)],
        )
    )


@contextmanager
def storm(
    port: int, arguments: argparse.Namespace, found: list[tuple[float, list[float]]]
) -> Iterator[None]:
    """Queries flow while the context lasts; their rate and waits are added to ``found``."""
    spawn = multiprocessing.get_context("spawn")
    begun, over, told = spawn.Event(), spawn.Event(), spawn.Queue()
    clients = spawn.Process(target=_clients, args=(port, arguments, begun, over, told), daemon=True)
    clients.start()
    begun.wait(30)
    try:
        yield
    finally:
        over.set()
        found.append(told.get(timeout=30))
        clients.join()


def capacity(run: QueriedRun, count: int = _FILE_RECORDS) -> float:
    """Records a second of a file that is written at once."""
    before, at_us = applied(run), time.time_ns() // 1000
    lines = b"".join(
        b'{"at":%d,"key":%d,"cost":%d}\n' % (at_us, number % KEYS, number % 7)
        for number in range(count)
    )
    began_s = time.monotonic()
    with (run.folder / "in" / "0.jsonl").open("ab", buffering=0) as file:
        file.write(lines)
    until(lambda: applied(run) >= before + count)
    return count / (time.monotonic() - began_s)


def rounds(run: QueriedRun, arguments: argparse.Namespace, rate: int) -> dict[str, Any]:
    """Calm and storm in turn while records flow in."""
    writer = Writer(run.folder / "in", rate)
    writing = threading.Thread(target=writer.run, daemon=True)
    writing.start()
    rates: dict[bool, list[float]] = {False: [], True: []}
    seen: list[tuple[float, list[float]]] = []
    try:
        time.sleep(_SETTLE_S * 2)
        for _ in range(arguments.rounds):
            rates[False].append(_rate(run, arguments.seconds))
            with storm(run.port, arguments, seen):
                time.sleep(_SETTLE_S)
                rates[True].append(_rate(run, arguments.seconds))
    finally:
        writer.stop.set()
        writing.join()
    calm, stormy = statistics.median(rates[False]), statistics.median(rates[True])
    waits = sorted(wait for _, some in seen for wait in some)
    return {
        "records_per_s": rate,
        "calm_per_s": round(calm),
        "storm_per_s": round(stormy),
        "loss_percent": round(100 * (1 - stormy / calm), 2),
        "queries_per_s": round(statistics.median(each for each, _ in seen)),
        "query_p50_ms": round(1000 * quantile(waits, 0.5), 2),
        "query_p99_ms": round(1000 * quantile(waits, 0.99), 2),
    }


def _rate(run: QueriedRun, seconds: float) -> float:
    """Records a second, between two lines in which the run itself says how many there were: it is
    not asked."""
    before, began_s = _next_line(run)
    time.sleep(seconds)
    after, ended_s = _next_line(run)
    return (after - before) / (ended_s - began_s)


def _next_line(run: QueriedRun) -> tuple[int, float]:
    old = _lines(run)
    until(lambda: len(_lines(run)) > len(old))
    return int(_lines(run)[-1].replace(",", "")), time.monotonic()


def _lines(run: QueriedRun) -> list[str]:
    return re.findall(
        r"^queried: ([0-9,]+) records", (run.folder / "said.txt").read_text(), re.MULTILINE
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench query_storm", description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--window", default="10m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--folder", type=Path, help="keep the run's folder here")
    arguments = parser.parse_args(sys.argv[1:])
    with (
        tempfile.TemporaryDirectory() as temporary,
        queried_run((arguments.folder or Path(temporary)) / "run", 1) as run,
    ):
        capacity(run, 50_000)  # warm
        calm = capacity(run)
        found = rounds(run, arguments, int(calm * arguments.share))
    print(json.dumps({"capacity_per_s": round(calm), **found}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
