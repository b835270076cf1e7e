"""Changes the number of workers while a run goes on.

A request writes the new number to the root, and the driver adjusts slots and processes to it. A new
slot is a new worker, which the master finds by itself. With ``--spares auto`` the number of spares
follows the hosts of the workers (:mod:`.auto_spares`). A surplus worker is *drained*: it becomes a
member of ``leaving``, and the master moves its shards away. Its process ends only when no range
table names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from millwheel.adapters.processes.supervisor import Supervisor
from millwheel.control.roots.root import write_atomically
from millwheel.core.model.damage import DAMAGE
from millwheel.launch.auto_spares import AutoSpares
from millwheel.launch.launchers.base import Launcher
from millwheel.launch.members import JoinedWorker

_ASKED, _ANSWERED = "scale.json", "scaled.json"
_LOOK_S = 0.2  # between looks for another requested number of workers


class Scale(msgspec.Struct, frozen=True):
    """The requested or present number of workers. ``problem`` is the reason why a requested number
    is refused."""

    workers: int
    problem: str = ""


def ask(root: Path, workers: int) -> None:
    """Request this number of workers on a root that is driven."""
    (root / _ANSWERED).unlink(missing_ok=True)
    write_atomically(root / _ASKED, msgspec.json.encode(Scale(workers)))


def answer(root: Path) -> Scale | None:
    """The outcome of the last :func:`ask`; None while the driver works on it."""
    return _read(root / _ANSWERED)


def forget(root: Path) -> None:
    """Remove requests and answers of earlier runs: a new run begins with the number of workers in
    its command."""
    for name in (_ASKED, _ANSWERED):
        (root / name).unlink(missing_ok=True)


def _read(path: Path) -> Scale | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Scale)
    except (OSError, *DAMAGE):
        return None


class Cluster(Protocol):
    """The driver's view of the workers, and its requests to the master to move the shards of some
    away."""

    @property
    def members(self) -> Mapping[str, JoinedWorker]:
        """The workers that are members now, by incarnation."""

    @property
    def owners(self) -> frozenset[str]:
        """Every incarnation that a range table names as an owner or as the next owner."""

    def drain(self, incarnations: frozenset[str]) -> None:
        """Set the workers whose shards the master moves away from now on."""

    def seat(self, workers: int) -> None:
        """Set how many workers serve from now on; the others stand by."""


class Scaling:
    """The slots of one run. ``begin`` starts the worker of a slot and keeps it alive; ``most``
    slots can have one. ``auto`` decides how many spares there are (None: their number stays)."""

    def __init__(
        self,
        root: Path,
        slots: range,
        spares: int,
        begin: Callable[[int], None],
        supervisor: Supervisor,
        announce: Callable[[str], None],
        most: int | None = None,
        auto: AutoSpares | None = None,
    ) -> None:
        self._root = root
        self._spares = spares
        self._begin = begin
        self._supervisor = supervisor
        self._announce = announce
        self._most = most
        self._auto = auto
        self._active = set(slots)
        self._leaving: set[int] = set()
        self._target: Scale | None = None
        self._done = True
        self._next_look_s = 0.0

    def step(self, now_s: float, cluster: Cluster, launcher: Launcher) -> None:
        """Take the next step towards the requested number."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        request = _read(self._root / _ASKED)
        if request is not None and request != self._target:
            self._target, self._done = request, False
            self._change(request, cluster)
        self._empty(cluster, launcher)
        if self._target is not None and not self._done:
            self._finish(self._target, cluster)
        if self._auto is not None and not self._leaving:
            self._adapt(self._auto, now_s, cluster)

    def _adapt(self, auto: AutoSpares, now_s: float, cluster: Cluster) -> None:
        """Take the next step towards the number of spares that the hosts ask for."""
        members = {
            name: member for name, member in cluster.members.items() if member.slot in self._active
        }
        hosts = {member.slot: member.host for member in members.values()}
        if missing := self._active - hosts.keys():
            step = auto.awaited(missing, now_s)
        else:
            owners = cluster.owners
            idle = {member.slot for name, member in members.items() if name not in owners}
            step = auto.look(hosts, self._spares, idle, now_s)
        if step.line:
            self._announce(step.line)
        if step.more:
            self._spares += 1
            self._add(self._free())
        elif step.fewer is not None:
            self._spares -= 1
            self._let_go(step.fewer)

    def _change(self, target: Scale, cluster: Cluster) -> None:
        count = target.workers + self._spares
        if self._most is not None and count > self._most:
            problem = (
                f"this Spark has room for {self._most} workers, spares counted, because the run"
                " began with that many; start it again with more --workers, or use --launcher"
                " processes or a Spark cluster with free cores"
            )
            self._answer(Scale(target.workers, problem))
            return
        cluster.seat(target.workers)
        while len(self._active) > count:
            self._let_go(max(self._active))
        while len(self._active) < count:
            self._add(self._free())

    def _free(self) -> int:
        """The lowest slot without a worker."""
        occupied = self._active | self._leaving
        return next(slot for slot in range(len(occupied) + 1) if slot not in occupied)

    def _add(self, slot: int) -> None:
        self._active.add(slot)
        self._begin(slot)
        self._announce(f"The worker {slot} is started.")

    def _let_go(self, slot: int) -> None:
        self._active.discard(slot)
        self._leaving.add(slot)
        self._supervisor.let_go(f"worker {slot}", partial(self._left, slot))
        self._announce(f"The worker {slot} gives its ranges away, and then leaves.")

    def _empty(self, cluster: Cluster, launcher: Launcher) -> None:
        """End the drained workers that no longer own anything. If one dies earlier, the master
        handles it as any dead worker."""
        draining = {
            name: member for name, member in cluster.members.items() if member.slot in self._leaving
        }
        cluster.drain(frozenset(draining))
        for name, member in draining.items():
            if name not in cluster.owners:
                launcher.kill(member.slot, member.pid)

    def _left(self, slot: int) -> None:
        self._leaving.discard(slot)
        self._announce(f"The worker {slot} has left.")

    def _finish(self, target: Scale, cluster: Cluster) -> None:
        there = {member.slot for member in cluster.members.values()}
        if not self._leaving and self._active <= there:
            self._answer(target)

    def _answer(self, scale: Scale) -> None:
        self._done = True
        write_atomically(self._root / _ANSWERED, msgspec.json.encode(scale))
