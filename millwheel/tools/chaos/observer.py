"""Observes a run from outside while faults hit it: ZooKeeper shows members and owners, the journals
show commits. It only reads."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psutil

from millwheel.adapters.ports import Coordination
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import MillwheelError
from millwheel.launch.members import JoinedWorker, read_members
from millwheel.tools.chaos.journal_tail import JournalTail
from millwheel.tools.chaos.plan import Fault, Target
from millwheel.tools.chaos.recoveries import Recoveries, Recovery

LEADERS = {Target.MASTER: "masters-leader", Target.INJECTOR: "injector-leader"}
"""The role in which the leader of a service is a member."""
_AGAIN_S = 1.0  # before a service that did not answer is asked again
Seen = Callable[[Recoveries, float], None]


class Observer:
    """For one thread, which calls :meth:`look` many times a second. ``connect`` gives a session
    with the run's ZooKeeper, or raises MillwheelError while there is none."""

    def __init__(self, root: Path, connect: Callable[[], Coordination]) -> None:
        self._journals = root / "journal"
        self._connect = connect
        self._session: Coordination | None = None
        self._try_at_s = 0.0
        self._news: queue.SimpleQueue[tuple[float, Seen]] = queue.SimpleQueue()
        self._members: dict[str, JoinedWorker] = {}
        self._joined: dict[str, JoinedWorker] = {}
        self._tails: dict[str, JournalTail] = {}
        self.recoveries = Recoveries()

    def look(self, now_s: float) -> None:
        """Read members, owners and journals."""
        if self._session is None and now_s >= self._try_at_s:
            self._open(now_s)
        while not self._news.empty():
            at_s, seen = self._news.get()
            seen(self.recoveries, at_s)
        self._read_journals()
        sealed = {
            name for name in self.recoveries.unsealed if JournalTail(self._journals / name).sealed()
        }
        self.recoveries.gone(sealed, now_s)

    def on_fault(
        self, target: Target, fault: Fault, pids: frozenset[int], now_s: float
    ) -> Recovery:
        """A fault has hit these processes: a worker, or an executor and all that runs in it. Look
        right before it, so that earlier commits are not taken for later ones."""
        return self.recoveries.on_fault(target, fault, self._workers_in(pids), now_s)

    def serves(self, target: Target, pids: frozenset[int]) -> bool:
        """Whether these processes have work: they own shards, or a service leads."""
        if target in LEADERS:
            return bool(self.recoveries.leaders.get(target))
        return target is Target.ZOOKEEPER or self.recoveries.owns(self._workers_in(pids))

    def _workers_in(self, pids: frozenset[int]) -> set[str]:
        return {name for name, member in self._joined.items() if member.pid in pids}

    def close(self) -> None:
        """Close the session; nothing is observed after this."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open(self, now_s: float) -> None:
        self._try_at_s = now_s + _AGAIN_S
        try:
            session = self._connect()
            session.on_lost(partial(self._post, lambda *_: self._lost(session)))
            session.watch_members("workers", self._workers_changed)
            for target, role in LEADERS.items():
                session.watch_members(role, partial(self._leader_changed, target))
            session.watch_tables(lambda table: self._post(partial(_table, table)))
            self._session = session
        except MillwheelError:
            return

    def _lost(self, session: Coordination) -> None:
        if session is self._session:
            self.close()

    def _post(self, seen: Seen) -> None:
        self._news.put((time.monotonic(), seen))

    def _workers_changed(self, members: Mapping[str, bytes]) -> None:
        workers = read_members(members)
        self._post(lambda recoveries, at_s: self._workers(workers, recoveries, at_s))

    def _workers(
        self, workers: dict[str, JoinedWorker], recoveries: Recoveries, at_s: float
    ) -> None:
        recoveries.gone(self._joined.keys() - workers.keys(), at_s)
        self._joined.update(workers)
        for name in workers:
            self._tails.setdefault(name, JournalTail(self._journals / name))

    def _leader_changed(self, target: Target, members: Mapping[str, bytes]) -> None:
        names = frozenset(members)
        self._post(lambda recoveries, at_s: recoveries.led(target, names, at_s))

    def _read_journals(self) -> None:
        for name, tail in list(self._tails.items()):
            # also when nobody waits, so that the next look has little to read
            commits = list(tail.new())
            now_s = time.monotonic()
            for commit in commits if self.recoveries.followed else ():
                self.recoveries.committed(commit.shard, commit.token, now_s)
            if tail.sealed():
                del self._tails[name]


def _table(table: RangeTable, recoveries: Recoveries, at_s: float) -> None:
    recoveries.table(table, at_s)


def family(process: psutil.Process) -> frozenset[int]:
    """A process and all that were started below it."""
    try:
        below = process.children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    return frozenset({process.pid, *(child.pid for child in below)})
