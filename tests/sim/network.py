"""The network between simulated processes: connections that keep their order while they live, and
partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.sim.kernel import SECOND, Simulation
from tests.sim.process import Process

_KEEPALIVE_US = 2 * SECOND
_RETRY_US = 20_000

Receive = Callable[[Any], None]


class Network:
    """Who can reach whom. ``slowness`` multiplies all delays."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.slowness = 1
        self.connections: list[Connection] = []
        self._blocked: set[tuple[str, str]] = set()

    def block(self, pairs: set[tuple[str, str]]) -> None:
        """Nothing passes from the first of a pair to the second any more."""
        self._blocked |= pairs

    def heal(self, pairs: set[tuple[str, str]]) -> None:
        self._blocked -= pairs

    def heal_all(self) -> None:
        self._blocked.clear()
        self.slowness = 1

    def passes(self, source: str, target: str) -> bool:
        return not self._blocked or (place_of(source), place_of(target)) not in self._blocked

    def delay(self) -> int:
        return self.sim.delay(50, 1500) * self.slowness

    def connect(
        self, client: Process, server: Process, to_server: Receive, to_client: Receive
    ) -> Connection:
        connection = Connection(self, client, server, to_server, to_client)
        self.connections.append(connection)
        return connection


def place_of(name: str) -> str:
    """Partitions cut off slots, not incarnations: ``w1-17`` stands at ``w1``."""
    return name.partition("-")[0]


class Connection:
    """In order both ways while it lives. A broken one loses what is on its way, or delivers it
    late."""

    def __init__(
        self,
        network: Network,
        client: Process,
        server: Process,
        to_server: Receive,
        to_client: Receive,
    ) -> None:
        self.network = network
        self.client, self.server = client, server
        self.on_broken: Callable[[], None] = lambda: None
        self.broken = False
        self._late = False
        self._receive = {True: to_server, False: to_client}
        self._queues: dict[bool, deque[tuple[int, Any]]] = {True: deque(), False: deque()}
        self._due = {True: 0, False: 0}
        self._stuck_since = 0

    def to_server(self, message: Any) -> None:
        self._send(True, message)

    def to_client(self, message: Any) -> None:
        self._send(False, message)

    def _send(self, forth: bool, message: Any) -> None:
        if self.broken:
            return
        sim, queue = self.network.sim, self._queues[forth]
        self._due[forth] = max(self._due[forth], sim.now + self.network.delay())
        queue.append((self._due[forth], message))
        if len(queue) == 1:
            sim.at(self._due[forth], partial(self._pump, forth))

    def _pump(self, forth: bool) -> None:
        """Deliver what is due in one direction."""
        if self.broken and not self._late:
            return
        source, target = (self.client, self.server) if forth else (self.server, self.client)
        sim, queue = self.network.sim, self._queues[forth]
        if not self.network.passes(source.name, target.name):
            self._stuck_since = self._stuck_since or sim.now
            if sim.now > self._stuck_since + _KEEPALIVE_US:
                self.cut()
            else:
                sim.later(_RETRY_US, partial(self._pump, forth))
            return
        self._stuck_since = 0
        if not target.alive:
            self.cut()
            return
        receive = self._receive[forth]
        while queue and queue[0][0] <= sim.now:
            message = queue.popleft()[1]
            target.later(0, partial(receive, message))
        if queue:
            sim.at(queue[0][0], partial(self._pump, forth))

    def cut(self, late: bool = False) -> None:
        """Break it; with ``late`` what was on its way still arrives, some time: after what is sent
        again."""
        if self.broken:
            return
        self.broken, self._late = True, late
        self.network.connections.remove(self)
        self.client.later(self.network.sim.delay(100, 5000), lambda: self.on_broken())
        sim = self.network.sim
        for forth in (True, False):
            if late and self._queues[forth]:
                sim.later(
                    sim.delay(1000, sim.rng.choice([10_000, 50_000, SECOND])),
                    partial(self._pump, forth),
                )
