"""``python -m bench cluster``: a thousand workers and 100,000 shards against the real machines of
master and injector.

    python -m bench cluster [--workers 10 30 100 300 1000] [--shards 100] [--nodes 50]
                            [--out FILE] [--picture FILE]

``--shards`` is per worker, over all nodes. No process is started and no record flows: the machines
get the events that such a cluster would send, in one thread, and their effects are answered as the
runtimes answer them. So the times are processor time of master or injector, without network, disk
or ZooKeeper. ``sent_mb`` is what ZooKeeper must deliver after the death of one worker: every
changed table to every worker. Each size runs in a process of its own, for its memory. Prints a
table, and writes one JSON file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil

from bench.curves import curves
from bench.machine import machine
from millwheel.control.injector.effects import Broadcast
from millwheel.control.injector.events import (
    Connected,
    NumbersReported,
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import RemoveMember, SealJournal, WriteRangeTable
from millwheel.control.master.events import (
    Event,
    JournalSealed,
    LoadReported,
    Member,
    MembersChanged,
    ShardLoad,
    TableSeen,
    TablesLoaded,
    Tick,
    WorkerUnreachable,
)
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry

_TICK_US = 200_000


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster."""

    workers: int
    shards: int
    nodes: int


@dataclass(frozen=True, slots=True)
class ClusterCosts:
    """Milliseconds of processor time, MB, and bytes. ``loads_ms``: every worker reports its loads
    once, as each second. ``failover_ms``: from the broken connection of one worker until its last
    shard has an owner in a table."""

    workers: int
    shards: int
    plan_ms: float
    tick_ms: float
    loads_ms: float
    failover_ms: float
    sent_mb: float
    largest_table_kb: float
    master_mb: float
    first_reports_ms: float
    watermark_round_ms: float
    injector_mb: float


def main() -> int:
    """See the module."""
    arguments = _parser().parse_args()
    found = []
    for workers in arguments.workers:
        size = Size(workers, workers * arguments.shards, arguments.nodes)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found.append(pool.submit(measure, size).result())
        print(
            table(found[-1:]) if len(found) == 1 else table(found[-1:]).splitlines()[-1], flush=True
        )
    text = {
        "machine": machine(),
        "nodes": arguments.nodes,
        "sizes": [asdict(each) for each in found],
    }
    if arguments.picture is not None:
        arguments.picture.write_text(picture(found), encoding="utf-8")
    arguments.out.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    parser.add_argument("--shards", type=int, default=100, help="for each worker")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("cluster.json"))
    parser.add_argument("--picture", type=Path, help="draw the curve as an SVG")
    return parser


def measure(size: Size) -> ClusterCosts:
    """One cluster: it starts, reports, loses a worker, and has two watermark rounds."""
    empty_mb = _memory_mb()
    cluster = SimulatedMaster(size)
    plan_ms = cluster.begin()
    tick_ms = cluster.tick()
    loads_ms = cluster.report_loads()
    master_mb = _memory_mb() - empty_mb
    before = {each.computation: each.version for each in cluster.tables()}
    failover_ms = cluster.lose(cluster.names[0])
    changed = [
        len(each.encode()) for each in cluster.tables() if each.version > before[each.computation]
    ]
    full_mb = _memory_mb()
    watermarks = SimulatedInjector(cluster.tables())
    first_ms = watermarks.first_reports()
    round_ms = watermarks.next_round()
    return ClusterCosts(
        workers=size.workers,
        shards=size.shards,
        plan_ms=plan_ms,
        tick_ms=tick_ms,
        loads_ms=loads_ms,
        failover_ms=failover_ms,
        sent_mb=sum(changed) * size.workers / 1e6,
        largest_table_kb=max(changed, default=0) / 1e3,
        master_mb=master_mb,
        first_reports_ms=first_ms,
        watermark_round_ms=round_ms,
        injector_mb=_memory_mb() - full_mb,
    )


class SimulatedMaster:
    """The machine of a master, and the answers that its runtime would give it: every seal and every
    write succeeds."""

    def __init__(self, size: Size) -> None:
        each = max(1, size.shards // size.nodes)
        demands = tuple(NodeDemand(NodeName(f"n{number}"), each) for number in range(size.nodes))
        self.names = [WorkerName(f"w{number}-{number:012x}") for number in range(size.workers)]
        self._state = MasterState(MasterConfig(nodes=demands, expected_workers=size.workers))
        self._members = tuple(
            Member(incarnation=name, address="host:1", host=f"h{name}") for name in self.names
        )
        self._now_us = 0

    def begin(self) -> float:
        """From the first event until every shard has an owner (ms)."""
        self._now_us += _TICK_US
        began = time.process_time()
        self._take(
            Tick(now_us=self._now_us),
            TablesLoaded(tables=()),
            MembersChanged(members=self._members),
        )
        took_ms = (time.process_time() - began) * 1e3
        self._check()
        return took_ms

    def tick(self) -> float:
        """One of the five ticks of a second, when nothing has changed for long (ms)."""
        # the first one looks at everything, as one in fifty does
        for passed_us in (60_000_000, _TICK_US):
            self._now_us += passed_us
            took_ms = self._timed(Tick(now_us=self._now_us))
        return took_ms

    def report_loads(self) -> float:
        """Every worker reports the load of each of its shards, as it does every second (ms)."""
        mine: dict[WorkerName, list[ShardLoad]] = {name: [] for name in self.names}
        for each in self.tables():
            for entry in each.shards:
                load = ShardLoad(
                    shard=entry.shard,
                    token=entry.token,
                    records=10,
                    state_bytes=1_000,
                    busy_us=5_000,
                )
                mine[entry.owner].append(load)
        return self._timed(
            *(LoadReported(incarnation=name, loads=tuple(loads)) for name, loads in mine.items())
        )

    def lose(self, name: WorkerName) -> float:
        """A worker dies (ms until its shards have owners)."""
        self._members = tuple(member for member in self._members if member.incarnation != name)
        took_ms = self._timed(WorkerUnreachable(incarnation=name, reason="its connection broke"))
        self._check()
        return took_ms

    def tables(self) -> Sequence[RangeTable]:
        """As stored."""
        return self._state.tables

    def _check(self) -> None:
        members = {member.incarnation for member in self._members}
        lost = [
            entry.shard
            for each in self.tables()
            for entry in each.shards
            if entry.owner not in members
        ]
        assert self.tables(), "no table was written"
        assert not lost, f"{len(lost)} shards have no living owner"

    def _timed(self, *events: Event) -> float:
        began = time.process_time()
        self._take(*events)
        return (time.process_time() - began) * 1e3

    def _take(self, *events: Event) -> None:
        pending = deque(events)
        while pending:
            for effect in self._state.handle(pending.popleft()):
                match effect:
                    case SealJournal():
                        pending.append(JournalSealed(incarnation=effect.incarnation, end=1_000))
                    case WriteRangeTable():
                        stored = TableSeen(
                            table=replace(effect.table, version=effect.table.version + 1)
                        )
                        pending += [stored, stored]  # the answer to the write, and the watch
                    case RemoveMember():
                        pending.append(MembersChanged(members=self._members))
                    case _:
                        pass


class SimulatedInjector:
    """The machine of an injector, with a connection for each worker."""

    def __init__(self, tables: Sequence[RangeTable]) -> None:
        self._state = InjectorState()
        self._connections: dict[WorkerName, int] = {}
        self._shards: dict[tuple[int, NodeName], list[ShardEntry]] = {}
        for each in tables:
            self._state.handle(RangesChanged(each))
            for entry in each.shards:
                connection = self._connections.setdefault(entry.owner, len(self._connections) + 1)
                self._shards.setdefault((connection, each.computation), []).append(entry)
        for connection in self._connections.values():
            self._state.handle(Connected(connection))
        self._nodes = len(tables)

    def first_reports(self) -> float:
        """Every worker reports every shard by name, and the watermarks are published (ms)."""
        events = []
        for (connection, node), entries in self._shards.items():
            numbers = np.arange(len(entries), dtype=np.int64)
            events.append(ReportsArrived(connection, node, _columns(entries, 1), numbers=numbers))
        return self._timed(events, 1)

    def next_round(self) -> float:
        """Every worker reports every shard again, by number (ms)."""
        events = []
        for (connection, node), entries in self._shards.items():
            numbers = np.arange(len(entries), dtype=np.int64)
            events.append(
                NumbersReported(connection, node, numbers, np.full(len(entries), 2, np.int64))
            )
        return self._timed(events, 2)

    def _timed(
        self, events: Sequence[ReportsArrived | NumbersReported], watermark_us: int
    ) -> float:
        began = time.process_time()
        for event in events:
            self._state.handle(event)
        [told] = self._state.handle(PublishDue())
        took_ms = (time.process_time() - began) * 1e3
        assert isinstance(told, Broadcast)
        assert list(told.watermarks.values()) == [watermark_us] * self._nodes, (
            "a watermark did not rise"
        )
        return took_ms


def picture(found: Sequence[ClusterCosts]) -> str:
    """How each grows with the workers."""
    names = {
        "plan, ms": "plan_ms",
        "failover of one worker, ms": "failover_ms",
        "loads of one second, ms": "loads_ms",
        "watermark round, ms": "watermark_round_ms",
        "tables sent after a death, MB": "sent_mb",
    }
    lines = {
        label: [(each.workers, getattr(each, name)) for each in found]
        for label, name in names.items()
    }
    return curves(
        "Master and injector under many workers",
        f"workers, with {found[0].shards // found[0].workers} shards each",
        lines,
    )


def _columns(entries: Sequence[ShardEntry], watermark_us: int) -> ReportColumns:
    shards: list[ShardName] = [entry.shard for entry in entries]
    tokens = np.array([entry.token for entry in entries], np.int64)
    watermarks = np.full(len(entries), watermark_us, np.int64)
    return ReportColumns(shards, tokens, watermarks, np.full(len(entries), "input", object))


def _memory_mb() -> float:
    return psutil.Process().memory_info().rss / 1e6


def table(found: Sequence[ClusterCosts]) -> str:
    """One row for each size, as Markdown."""
    names = list(ClusterCosts.__slots__)
    rows = [f"| {' | '.join(f'{getattr(each, name):,.0f}' for name in names)} |" for each in found]
    return "\n".join([f"| {' | '.join(names)} |", "|---" * len(names) + "|", *rows])
