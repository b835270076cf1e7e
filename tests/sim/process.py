"""Simulated processes: they live, stall, are paused and killed; their tasks block without stopping
anybody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import greenlet

from tests.fakes.faulty_files import Killed
from tests.sim.kernel import FOREVER, SECOND, START_US, Simulation


class ProcessClock:
    """The clocks of one process: the wall clock jumps and drifts, the monotonic one only drifts."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.jumped_us = 0
        self.drift = 0.0

    def now_us(self) -> int:
        return self._sim.now + self.jumped_us + self._drifted()

    def monotonic_us(self) -> int:
        return self._sim.now - START_US + 1 + self._drifted()

    def _drifted(self) -> int:
        return int((self._sim.now - START_US) * self.drift)


class Task(greenlet.greenlet):
    """What a process does; code that runs in it can find out whose it is."""

    process: Process


class Process:
    """One process. ``slow`` multiplies the time of everything it does."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim = sim
        self.name = name
        self.alive = True
        self.paused_until = 0
        self.slow = 1
        self.clock = ProcessClock(sim)
        self.on_exit: list[Callable[[], None]] = []
        self._tasks: dict[greenlet.greenlet, None] = {}

    @property
    def paused(self) -> bool:
        return self.sim.now < self.paused_until

    def at(self, when: int, action: Callable[[], object]) -> None:
        """``action`` happens to this process at ``when``, or when it is continued, or never if it
        is dead."""
        self.sim.at(when, partial(self._happen, action))

    def later(self, after: int, action: Callable[[], object]) -> None:
        self.at(self.sim.now + after, action)

    def _happen(self, action: Callable[[], object]) -> None:
        if not self.alive:
            return
        if self.sim.now < self.paused_until:
            self.at(self.paused_until, action)
            return
        action()

    # --- tasks

    def spawn(self, work: Callable[[], object]) -> None:
        """A task that starts now."""
        task = Task(lambda: self._guarded(work), self.sim.hub)
        task.process = self
        self._tasks[task] = None
        self.later(0, task.switch)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Killed:
            pass
        finally:
            self._tasks.pop(greenlet.getcurrent(), None)

    def sleep(self, for_us: int) -> None:
        """Give way to everybody else for a while. Outside of a task nothing happens."""
        current = greenlet.getcurrent()
        if current is self.sim.hub:
            return
        self.sim.later(for_us * self.slow, partial(self._happen, current.switch))
        self.sim.hub.switch()

    def check(self) -> None:
        """Raise Killed in whatever still runs after the process died."""
        if not self.alive:
            raise Killed

    def end(self) -> None:
        """The process is gone at once, whatever it was doing."""
        if not self.alive:
            return
        self.alive = False
        self.sim.later(0, self._reap)
        for callback in self.on_exit:
            callback()

    def close(self) -> None:
        """The simulation is over: unwind everything now. Left to the garbage collector, tasks of
        this world would wake up in the middle of the next one."""
        self.alive = False
        self._reap()

    def _reap(self) -> None:
        """Unwind what was blocked; nothing of it has any effect any more."""
        for task in list(self._tasks):
            if task:
                task.throw(Killed)


class Mailbox:
    """What a task waits for: items, or a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: deque[Any] = deque()
        self._waiter: greenlet.greenlet | None = None
        self._ticket = 0

    def put(self, item: Any) -> None:
        if self._process.alive:
            self._items.append(item)
            self._wake()

    def __len__(self) -> int:
        return len(self._items)

    def take(self, at_most: int, timeout_us: int) -> list[Any]:
        """Up to ``at_most`` items; waits for the first one, but not longer than ``timeout_us``."""
        if not self._items and timeout_us > 0:
            self._wait(timeout_us)
        items = self._items
        return [items.popleft() for _ in range(min(len(items), at_most))]

    def get(self) -> Any:
        """The next item."""
        while not self._items:
            self._wait(FOREVER)
        return self._items.popleft()

    def drain(self) -> list[Any]:
        """Everything there is."""
        items, self._items = list(self._items), deque()
        return items

    def _wait(self, timeout_us: int) -> None:
        process = self._process
        process.check()
        self._waiter = greenlet.getcurrent()
        ticket = self._ticket
        if timeout_us < 3600 * SECOND:
            process.later(timeout_us, partial(self._resume, ticket))
        process.sim.hub.switch()

    def _wake(self) -> None:
        if self._waiter is not None:
            self._process.later(0, partial(self._resume, self._ticket))

    def _resume(self, ticket: int) -> None:
        waiter = self._waiter
        if ticket == self._ticket and waiter is not None:
            self._ticket += 1
            self._waiter = None
            waiter.switch()


class Lock:
    """A mutex between the tasks of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._held = False
        self._waiting: deque[Mailbox] = deque()

    def __enter__(self) -> None:
        while self._held:
            mine = Mailbox(self._process)
            self._waiting.append(mine)
            mine.get()
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        if self._waiting:
            self._waiting.popleft().put(None)


class YieldingLock(Lock):
    """A mutex whose release gives way: whoever relies on what it guarded may find that others went
    on meanwhile."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._process.sleep(self._process.sim.delay(0, 2_000))
