"""Hosts for a run of the benchmark: network namespaces, which are lost with all the workers in
them."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from millwheel.launch.auto_spares import FIRST, needed
from millwheel.launch.certificates import make_set
from millwheel.tools.chaos.namespaces import Namespaces
from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.processes import processes_of, slot_of, strike

_DYING_S = 2.0
_CLOSING_S = 0.2


@dataclass(frozen=True, slots=True)
class LostHost:
    """A host that was lost ``at`` (s since 1970), with these processes."""

    at: float
    host: int
    pids: frozenset[int]


class Hosts:
    """The hosts of one run. Enter it before the run starts: this thread and all that it starts are
    in the hub then. A lost host is back, and its workers are started again, ``away_s`` later, once
    :meth:`step` is called."""

    def __init__(self, count: int, away_s: float, folder: Path) -> None:
        self._namespaces = Namespaces(count)
        self._away_s = away_s
        self._folder = folder
        self._back: tuple[float, int] | None = None

    def enter(self, stack: ExitStack) -> Mapping[str, str]:
        """Make the hosts, until the stack is unwound. Returns the variables that the run needs.
        Raises SetupError."""
        stack.enter_context(self._namespaces)
        return self._namespaces.environment

    def command(self, pipeline: Path, workers: int, spares: str, sets: Sequence[str]) -> list[str]:
        """The argv of the run; its root is ``root`` in the folder."""
        security = make_set(str(self._folder / "security")).absolute()
        given = [
            "--root",
            str(self._folder / "root"),
            "--workers",
            str(workers),
            "--spares",
            spares,
        ]
        return [
            sys.executable,
            "-m",
            "millwheel.tools.chaos",
            str(pipeline),
            *given,
            "--security",
            str(security),
            *sets,
        ]

    def lose(
        self,
        driver: int,
        rng: random.Random,
        among: Collection[int] | None = None,
        *,
        told: bool = False,
    ) -> LostHost | None:
        """Lose a host that has workers, or one of these processes: silently, as when its power
        fails, or ``told``, as when everything on it is killed and its connections break. None:
        there is no such host now, or one is away."""
        there: dict[int, list[int]] = {}
        for worker in processes_of(driver, Target.WORKERS):
            slot = slot_of(worker)
            if slot is not None:
                there.setdefault(self._namespaces.host_of(slot), []).append(worker.pid)
        hosts = sorted(
            host for host, pids in there.items() if among is None or set(among) & set(pids)
        )
        if not hosts or self._back is not None:
            return None
        host, at = rng.choice(hosts), time.time()
        if not told:
            self._namespaces.cut(host)
        self._back = (time.monotonic() + self._away_s, host)
        dying = [
            worker for worker in processes_of(driver, Target.WORKERS) if worker.pid in there[host]
        ]
        for worker in dying:
            strike(worker, signal.SIGKILL)
        if told:
            psutil.wait_procs(dying, timeout=_DYING_S)
            # the threads of a process may close what it had open after it counts as gone
            time.sleep(_CLOSING_S)
            self._namespaces.cut(host)
        return LostHost(at, host, frozenset(there[host]))

    def step(self) -> bool:
        """Bring the lost host back when it is time. True while none is away."""
        if self._back is not None and time.monotonic() >= self._back[0]:
            self._namespaces.reconnect(self._back[1])
            self._back = None
        return self._back is None

    def spares(self, workers: int, given: str) -> int:
        """How many spares there come to be."""
        if given != "auto":
            return int(given)
        count = FIRST
        while count < needed(
            Counter(str(self._namespaces.host_of(slot)) for slot in range(workers + count))
        ):
            count += 1
        return count


def environment(more: Mapping[str, str], paths: Sequence[Path]) -> dict[str, str]:
    """Ours, these variables, and a search path of these folders."""
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(map(str, paths))}
