"""Polls the health of workers, so that queries go to healthy ones first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from millwheel.engine.queries.peers.health import POOR, degree_in
from millwheel.engine.queries.peers.link import LinkClosed, packed
from millwheel.engine.queries.peers.peer_client import Workers

LOOK_S = 1.0
"""Between two polls (s): the health of a worker changes within seconds."""
_ANSWER_S = 0.5
"""The timeout of a poll (s). The thread that answers it never waits, so a slower worker is
silent."""


@dataclass(frozen=True, slots=True)
class HealthWatch:
    """For one asyncio loop. ``addresses`` returns those at which workers answer now."""

    workers: Workers
    addresses: Callable[[], frozenset[str]]

    async def run(self) -> None:
        """Poll all workers periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Poll all workers once."""
        addresses = self.addresses()
        for gone in self.workers.poor.keys() - addresses:
            del self.workers.poor[gone]
        await asyncio.gather(*(self._look(address) for address in addresses))

    async def _look(self, address: str) -> None:
        try:
            (reply,) = await asyncio.wait_for(
                self.workers.links.call(address, [packed("INFO")]), _ANSWER_S
            )
        except (LinkClosed, asyncio.TimeoutError):
            self.workers.suspect(address)
            return
        if degree_in(reply) < POOR:
            self.workers.poor[address] = monotonic() + 3 * LOOK_S  # the finding expires
        else:
            self.workers.poor.pop(address, None)
