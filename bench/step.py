"""What a step of few records costs: the loops of two workers, part C strong, in turn in one
process.

    python -m bench step [--cycles 300] [--tries 12] [--period-us 4000]

Journals, stores and connections are the real ones; only the clock is not, so each worker begins a
step every period, half a period after the other, whatever else the machine does. 5,000 records a
second are read. Prints the CPU time of a step (both loops, user and system), the least of all
tries, and their median: to compare two versions, run both in turn in a checkout of each, and
compare the least.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bench.latency import DIAL, RATE
from bench.paths import HOUSE, PIPELINES, PLUGINS
from millwheel.adapters.durable_store import open_journals
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.stores.growing_store import GrowingStores
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.connect.kinds import build_sink
from millwheel.connect.sources.base import Partition
from millwheel.connect.sources.generator import build_generator
from millwheel.core.model.names import ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.host.transport import ExchangeTransport
from millwheel.engine.workers.loop.pace import RuntimeLimits
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.process import GC_THRESHOLDS
from millwheel.engine.workers.threads.journal import JournalThread
from millwheel.language.spec.pipelines import load_pipeline

_SHARDS = {"source.ticks": 4, "counts": 2, "sums": 2, "sink.sums": 2, "sink.dead_letters": 4}
"""As a run on two workers has them."""
_START_US, _WARM_CYCLES = 1_800_000_000_000_000, 200
_MAX_EVENTS = 2_000
_RESULTS_S = 120.0  # for the first result of a try; milliseconds on a quiet machine


class _Clock:
    """The wall clock stands until it is moved; work is timed as ever."""

    def __init__(self) -> None:
        self.now = _START_US

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000


class _Aside:
    """The ports that a step of few records does not need: snapshots go to a folder, all else
    nowhere."""

    def __init__(self, folder: Path) -> None:
        self._paths = (str(folder / f"checkpoint-{number}") for number in itertools.count())

    def checkpoint_path(self, *_: object) -> str:
        return next(self._paths)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class _Worker:
    """A loop with its real journal, stores and connections."""

    def __init__(self, number: int, folder: Path, spec: Any, clock: _Clock) -> None:
        self.name = WorkerName(f"w{number}")
        self.mailbox = Mailbox()
        self.transport = ExchangeTransport("127.0.0.1:0", self.mailbox)
        post = self.mailbox.put
        journal = JournalThread(open_journals(str(folder / "root")).create(self.name), post)
        stores = GrowingStores(RocksStores(str(folder / self.name)), PosixFiles())
        outside = Factories(
            lambda given, home, *_: build_generator(given.options, home, clock=clock.now_us),
            partial(build_sink, identity="step"),
            listed=lambda *_: [Partition("0")],
        )
        assembly = Assembly(spec, str(folder), clock, outside)
        assembly.publish_aside(lambda task: post(task.carried_out()))
        self.graph = assembly.graph
        names = ("snapshots", "reports", "master", "savepoints", "followers", "copies")
        recoveries = SimpleNamespace(
            recover=lambda node, entry: post(
                ev.ShardRecovered(entry, node, stores.open(entry.shard, None))
            )
        )
        ports: Any = SimpleNamespace(
            clock=clock, transport=self.transport, journal=journal, recoveries=recoveries,
            tracing=None,
            **dict.fromkeys(names, _Aside(folder / f"aside-{number}")),
        )  # fmt: skip
        (folder / f"aside-{number}").mkdir()
        limits = RuntimeLimits.for_pipeline(spec.latency_us, assembly.waits_for_time())
        self._loop = WorkerRuntime(self.name, assembly.graph, assembly.make_shard, ports, limits)

    def step(self) -> None:
        self._loop.step(self.transport.take(0, _MAX_EVENTS))


class Workers:
    """Two of them, each with half of the shards."""

    def __init__(self, folder: Path, period_us: int) -> None:
        self._clock, self._half_us = _Clock(), period_us // 2
        (folder / "out").mkdir()
        params = {
            "pace": "balanced",
            "rate": str(RATE),
            "count": str(10**9),
            "output": str(folder / "out"),
        }
        spec = load_pipeline(PIPELINES / "latency.yaml", {**DIAL["strong"], **params})
        self._workers = [_Worker(number, folder, spec, self._clock) for number in range(2)]
        tables = [self._table(node) for node in self._workers[0].graph.nodes]
        for worker in self._workers:
            worker.mailbox.put(
                ev.WorkersChanged({each.name: each.transport.address for each in self._workers})
            )
            for table in tables:
                worker.mailbox.put(ev.TableChanged(table))
        self.turn(3)
        for entry in [entry for table in tables for entry in table.shards]:
            owner = next(worker for worker in self._workers if worker.name == entry.owner)
            owner.mailbox.put(ev.TokenKnown(ShardName(entry.shard), Token(1)))

    def _table(self, node: str) -> RangeTable:
        ranges = tile(_SHARDS[node], self._workers[0].graph.grain(node))
        owners = itertools.cycle(worker.name for worker in self._workers)
        entries = (
            ShardEntry(ShardName(f"{node}-{number}"), each, next(owners), Token(1))
            for number, each in enumerate(ranges)
        )
        return RangeTable(cast("Any", node), tuple(entries), 0)

    def turn(self, cycles: int) -> None:
        """So many steps of each."""
        for _ in range(cycles):
            for worker in self._workers:
                worker.step()
                self._clock.now += self._half_us

    def close(self) -> None:
        """End the connections."""
        for worker in self._workers:
            worker.transport.close()


@contextmanager
def warm(period_us: int) -> Iterator[tuple[Workers, Path]]:
    """Two workers whose connections, caches and memory are as they are in a run, and the folder of
    their results."""
    sys.path[:0] = [str(HOUSE), str(PLUGINS)]
    with tempfile.TemporaryDirectory(prefix="step-", ignore_cleanup_errors=True) as folder:
        workers = Workers(Path(folder), period_us)
        for _ in range(20):
            workers.turn(1)
            time.sleep(0.02)  # they dial on threads
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        workers.turn(_WARM_CYCLES)
        yield workers, Path(folder) / "out"
        gc.unfreeze()
        workers.close()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m bench step", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--period-us", type=int, default=4_000)
    arguments = parser.parse_args()
    spent_us = []
    with warm(arguments.period_us) as (workers, results):
        for _ in range(arguments.tries):
            cycles, spent_s = _until_results(workers, arguments.cycles, results)
            spent_us.append(spent_s / cycles / 2 * 1e6)
    print(
        f"a step: {min(spent_us):.0f} µs of CPU at least, {statistics.median(spent_us):.0f} in the"
        " median"
    )
    return 0


def _until_results(workers: Workers, cycles: int, results: Path) -> tuple[int, float]:
    """At least so many steps of each, and more until results of theirs are in the files: the
    threads that write them may wait for a core. Returns how many, and their CPU time in seconds.
    Raises SystemExit for none in time."""
    before, began, until = _size(results), time.process_time(), time.monotonic() + _RESULTS_S
    done = 0
    while not done or _size(results) == before:
        if time.monotonic() > until:
            raise SystemExit("no result was seen in time: there are no figures")
        workers.turn(cycles)
        done += cycles
    return done, time.process_time() - began


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))
