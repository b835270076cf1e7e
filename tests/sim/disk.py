"""The file system calls of one simulated process: each takes time, each may fail, and between any
two of them anybody else may act or the process may be killed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.sim.kernel import Simulation
from tests.sim.process import Process

_WAITING = frozenset(
    {"write_at", "sync_data", "sync", "sync_dir", "link", "create", "exists", "make_dir"}
)
_WRITING = frozenset({"write_at", "create", "link", "make_dir"})
_SYNCING = frozenset({"sync_data", "sync", "sync_dir"})


class Trouble:
    """What is wrong with the disk at the moment: the probability of each kind, for the process
    ``who`` ("" for all)."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.who = ""
        self.slowness = 1

    def clear(self) -> None:
        self.rates, self.who, self.slowness = {}, "", 1


class SimFiles:
    """:class:`millwheel.adapters.spaces.files.Files` of one process, over the disk that all
    share."""

    def __init__(
        self, sim: Simulation, process: Process, disk: MemoryDisk, trouble: Trouble
    ) -> None:
        self._sim, self._process, self._disk, self._trouble = sim, process, disk, trouble
        self._kill_at = -1
        self._calls = 0

    def kill_after(self, calls: int) -> None:
        """End the process at one of its next calls, in the middle if that is a write."""
        self._kill_at = self._calls + calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._disk, name)

        def call(*args: Any) -> Any:
            return self._call(name, method, args)

        setattr(self, name, call)
        return call

    def _call(self, name: str, method: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if name == "close" and not self._process.alive:
            return None  # of a generator that is thrown away
        self._process.check()
        self._calls += 1
        if name in _WAITING:
            self._process.sleep(
                self._sim.delay(5, 250 if name in _SYNCING else 60) * self._trouble.slowness
            )
            self._process.check()
        if self._calls == self._kill_at:
            self._tear(name, args)
        rates = self._trouble.rates
        if rates and (not self._trouble.who or self._trouble.who == self._process.name):
            return self._troubled(name, method, args, rates)
        return method(*args)

    def _tear(self, name: str, args: tuple[Any, ...]) -> None:
        """The process is killed here; of a write some bytes are there."""
        if name == "write_at":
            self._disk.write_at(args[0], args[1][: self._sim.delay(0, len(args[1]))], args[2])
        self._sim.trace(f"{self._process.name} is killed in {name}", self._process.name)
        self._sim.later(0, self._process.end)
        self._process.sleep(1)

    def _troubled(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], rates: dict[str, float]
    ) -> Any:
        chance = self._sim.chance
        if name in _WRITING and chance(rates.get("full", 0.0)):
            raise OSError(errno.ENOSPC, "no space left (simulated)")
        if name in _SYNCING and chance(rates.get("sync", 0.0)):
            raise OSError(errno.EIO, "sync failed (simulated)")
        if name == "write_at" and len(args[1]) > 1 and chance(rates.get("short", 0.0)):
            return method(args[0], args[1][: self._sim.delay(1, len(args[1]) - 1)], args[2])
        if name == "read_at" and args[1] > 1 and chance(rates.get("short", 0.0)):
            return method(args[0], self._sim.delay(1, args[1] - 1), args[2])
        if name in _WAITING and chance(rates.get("error", 0.0)):
            raise OSError(errno.EIO, f"{name} failed (simulated)")
        answer = method(*args)
        if name in _WRITING and chance(rates.get("ambiguous", 0.0)):
            raise OSError(errno.EIO, f"{name} succeeded, its answer was lost (simulated)")
        return answer
