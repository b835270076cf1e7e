"""How long a failover takes: workers killed and stopped, master and injector killed, while records
flow.

    python -m bench failover [--kills 20] [--stops 3] [--services 5] [--workers 2] [--spares 0]
                             [--standby] [--keys 100000] [--rate 3000] [--folder DIR]
    python -m bench failover --kills 0 --stops 0 --services 0 --losses 10 --hosts 2 [--away 8]
    --workers 2 --spares auto

A callback has about 1 kB of state for each of ``--keys`` keys. For a worker: the seconds from the
signal until its ranges of that computation have visible output from another process, the first of
them and the last. For master and injector: until one leads again, and the longest time in which the
sink showed nothing at all. A lost host takes all its workers, silently; workers run in network
namespaces then, which needs root. Ends with a table.
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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.failover_seen import Silence, Struck, lines, longest_gap, silence, spread
from bench.hosts import Hosts, environment
from bench.paths import HOUSE, PIPELINES, PLUGINS
from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.control.roots.root import read_run
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import MillwheelError
from millwheel.launch.members import JoinedWorker, read_members
from millwheel.launch.progress.status_watch import addresses
from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.processes import processes_of

NODE = "visitors"
_REST_S = 3.0
_PATIENCE_S = 60.0
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Led:
    """A service that was killed ``at`` (s since 1970), and seconds until one led again."""

    what: str
    at: float
    took: float


@dataclass(slots=True)
class Noticed:
    """When the loss of a host was noticed: all its workers are no members, and all their ranges
    have other owners; seconds after it."""

    detected: float
    reassigned: float


class View:
    """The cluster as ZooKeeper tells it."""

    def __init__(self, root: Path, standby: bool) -> None:
        run = read_run(root)
        if run is None:
            raise SystemExit(f"{root} is not a root of a run")
        self.session = open_coordination(run.zookeeper, "failover", security=run.security)
        self.security = load_security(run.security, "client")
        self.standby = standby
        self.members: dict[str, JoinedWorker] = {}
        self.leaders: dict[str, Mapping[str, bytes]] = {}
        self.tables: dict[str, RangeTable] = {}
        self.session.watch_members("workers", self._workers)
        for role in ("masters-leader", "injector-leader"):
            self.session.watch_members(role, partial(self.leaders.__setitem__, role))
        self.session.watch_tables(lambda table: self.tables.__setitem__(table.computation, table))

    def _workers(self, found: Mapping[str, bytes]) -> None:
        self.members = read_members(found)

    def owners(self) -> list[tuple[str, str, str]]:
        """(shard, owner, standby) of everything."""
        return [
            (entry.shard, entry.owner, entry.standby)
            for table in [*self.tables.values()]
            for entry in table.shards
        ]

    def lost(self, pid: int) -> bool:
        """Whether a process is not a member."""
        return pid not in {member.pid for member in self.members.values()}

    def at_rest(self, workers: int) -> bool:
        """Everybody is there, and every shard has a living owner and stays with it."""
        entries = [entry for table in [*self.tables.values()] for entry in table.shards]
        served = all(entry.owner in self.members and not entry.next_owner for entry in entries)
        followed = not self.standby or all(
            entry.standby in self.members for entry in self.tables[NODE].shards
        )
        return len(self.members) == workers and bool(entries) and served and followed


def until(holds: Callable[[], bool], what: str, patience_s: float = _PATIENCE_S) -> None:
    """Wait for something. Raises SystemExit when it does not come."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {patience_s:.0f} s in vain: {what}")
        time.sleep(_LOOK_S)


def settled(view: View, workers: int) -> None:
    """Nothing has moved for a few seconds, and nobody stands by who has only begun to."""
    since, stood = time.monotonic(), view.owners()
    deadline = since + _PATIENCE_S
    while time.monotonic() - since < _REST_S:
        if not view.at_rest(workers) or view.owners() != stood:
            since, stood = time.monotonic(), view.owners()
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster does not come to rest: {view.members} {view.owners()}")
        time.sleep(0.05)


def strike_worker(view: View, how: signal.Signals, rng: random.Random) -> Struck:
    """Kill or stop a worker that serves a part of the computation."""
    table = view.tables[NODE]
    name = rng.choice(sorted({entry.owner for entry in table.shards}))
    pid = view.members[name].pid
    ranges = tuple(entry.range for entry in table.shards if entry.owner == name)
    at = time.time()
    os.kill(pid, how)
    return Struck(at, frozenset({pid}), ranges)


def lose_host(view: View, driver: int, hosts: Hosts, rng: random.Random) -> tuple[Struck, Noticed]:
    """Lose a host that serves a part of the computation, and wait until others have its ranges and
    it is back."""
    table = view.tables[NODE]
    serving = {view.members[entry.owner].pid for entry in table.shards}
    lost = hosts.lose(driver, rng, serving)
    if lost is None:
        raise SystemExit("there is no host to lose")
    dead = {name for name, member in view.members.items() if member.pid in lost.pids}
    ranges = tuple(entry.range for entry in table.shards if entry.owner in dead)
    until(lambda: not dead & view.members.keys(), "the lost workers stay members")
    detected = time.time() - lost.at
    until(
        lambda: all(owner and owner not in dead for _, owner, _ in view.owners()),
        "nobody gets the ranges",
    )
    noticed = Noticed(detected, time.time() - lost.at)
    until(hosts.step, "the host does not come back")
    return Struck(lost.at, lost.pids, ranges), noticed


def strike_service(view: View, driver: int, target: Target, role: str) -> Led:
    """Kill a service, and wait until another process leads; an injector must also know all
    watermarks again."""
    before = set(view.leaders.get(role, {}))
    at = time.time()
    os.kill(processes_of(driver, target)[0].pid, signal.SIGKILL)
    until(lambda: bool(set(view.leaders.get(role, {})) - before), f"nobody leads as {role}")
    if target is Target.INJECTOR:
        until(
            lambda: complete(view.leaders[role], view.security),
            "the injector does not know all watermarks",
        )
    return Led(target.value, at, time.time() - at)


def complete(leaders: Mapping[str, bytes], security: Security | None) -> bool:
    """Whether the leading injector publishes every node."""
    try:
        nodes = fetch_status(next(iter(addresses(leaders).values()), ""), 1.0, security).nodes
    except MillwheelError:
        return False
    return bool(nodes) and all(node.complete for node in nodes)


def start(
    arguments: argparse.Namespace, folder: Path, hosts: Hosts | None, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """The run, in the background."""
    pipeline = PIPELINES / "failover.yaml"
    sets = ["--set", f"output={folder / 'out'}", "--set", f"rate={arguments.rate}"]
    sets += ["--set", f"standby={int(arguments.standby)}"]
    if hosts is None:
        command = [
            sys.executable,
            "-m",
            "millwheel",
            "run",
            str(pipeline),
            "--launcher",
            "processes",
            *sets,
        ]
        command += [
            "--workers",
            str(arguments.workers),
            "--spares",
            arguments.spares,
            "--root",
            str(folder / "root"),
        ]
    else:
        command = hosts.command(pipeline, arguments.workers, arguments.spares, sets)
    env = environment({**variables, "BENCH_KEYS": str(arguments.keys)}, [HOUSE, PLUGINS])
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=env)


def measure(
    arguments: argparse.Namespace, folder: Path, driver: int, hosts: Hosts | None
) -> tuple[list[Struck | Led], list[Noticed]]:
    """All blows, one after the other, each when the cluster has come to rest."""
    root, rng, noticed = folder / "root", random.Random(1), list[Noticed]()
    workers = arguments.workers + (
        int(arguments.spares)
        if hosts is None
        else hosts.spares(arguments.workers, arguments.spares)
    )
    until(lambda: any((folder / "out").glob("*.jsonl")), "no output")
    view = View(root, arguments.standby)
    time.sleep(arguments.keys / arguments.rate + 2)
    blows: list[Struck | Led] = []
    signals = [signal.SIGKILL] * arguments.kills + [signal.SIGSTOP] * arguments.stops
    for how in signals:
        settled(view, workers)
        blow = strike_worker(view, how, rng)
        until(partial(view.lost, next(iter(blow.pids))), "it stays a member")
        blows.append(blow)
    for number in range(2 * arguments.services):
        settled(view, workers)
        target = (Target.MASTER, Target.INJECTOR)[number % 2]
        role = ("masters-leader", "injector-leader")[number % 2]
        blows.append(strike_service(view, driver, target, role))
    for _ in range(arguments.losses if hosts is not None else 0):
        settled(view, workers)
        blow, seen = lose_host(view, driver, hosts, rng)  # type: ignore[arg-type]
        blows.append(blow)
        noticed.append(seen)
    settled(view, workers)
    view.session.close()
    return blows, noticed


def table(
    arguments: argparse.Namespace, blows: list[Struck | Led], noticed: list[Noticed], folder: Path
) -> str:
    """The figures."""
    seen, ends = lines(folder / "out"), [*(blow.at for blow in blows[1:]), time.time()]
    quiet = [
        silence(seen, blow, end) if isinstance(blow, Struck) else blow
        for blow, end in zip(blows, ends, strict=True)
    ]
    for blow, came in zip(blows, quiet, strict=True):
        print(json.dumps({"at": blow.at, "figures": str(came)}), flush=True)
    told = ["| what | times | median s | p99 s | longest s |", "|---|---|---|---|---|"]
    workers = [each for each in quiet if isinstance(each, Silence)]
    alone = arguments.kills + arguments.stops
    groups = {
        "worker killed": workers[: arguments.kills],
        "worker stopped": workers[arguments.kills : alone],
    }
    for name, some in {**groups, "host lost": workers[alone:]}.items():
        if some:
            told.append(
                f"| {name}: first of its ranges | {len(some)} | {spread(s.first for s in some)} |"
            )
            told.append(
                f"| {name}: last of its ranges | {len(some)} | {spread(s.last for s in some)} |"
            )
    if noticed:
        told.append(
            f"| host lost: detected | {len(noticed)} | {spread(n.detected for n in noticed)} |"
        )
        told.append(
            f"| host lost: reassigned | {len(noticed)} | {spread(n.reassigned for n in noticed)} |"
        )
    for target in (Target.MASTER, Target.INJECTOR):
        led = [each for each in blows if isinstance(each, Led) and each.what == target.value]
        if led:
            gaps = [longest_gap(seen, each.at, each.at + _REST_S) for each in led]
            told.append(
                f"| {target.value} killed: until one leads | {len(led)} |"
                f" {spread(e.took for e in led)} |"
            )
            told.append(
                f"| {target.value} killed: longest silence of the sink | {len(led)} |"
                f" {spread(gaps)} |"
            )
    return "\n".join(told)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, number in (
        ("kills", 20),
        ("stops", 3),
        ("services", 5),
        ("workers", 2),
        ("losses", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--spares", default="0", help="a number, or, with --hosts, auto")
    parser.add_argument(
        "--hosts", type=int, default=0, help="hosts that the workers share; for --losses"
    )
    parser.add_argument("--away", type=float, default=8.0, help="seconds until a lost host is back")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=3_000)
    parser.add_argument(
        "--standby", action="store_true", help="each shard of the computation is followed"
    )
    parser.add_argument("--folder", default="")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="failover-"))
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        hosts = Hosts(arguments.hosts, arguments.away, folder) if arguments.hosts else None
        run = start(arguments, folder, hosts, {} if hosts is None else hosts.enter(stack))
        try:
            blows, noticed = measure(arguments, folder, run.pid, hosts)
            print(table(arguments, blows, noticed, folder))
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
