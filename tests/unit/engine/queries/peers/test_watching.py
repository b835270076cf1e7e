"""Workers are asked how well they are, and those that are not are avoided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from millwheel.engine.queries.peers.health import Health
from millwheel.engine.queries.peers.link import LinkClosed
from millwheel.engine.queries.peers.peer_client import Asking, Workers
from millwheel.engine.queries.peers.watching import HealthWatch


class FakeLinks:
    """Workers with a health, and those that are not there."""

    def __init__(self, **health: Health) -> None:
        self.health = health

    async def call(self, address: str, commands: Sequence[bytes]) -> list[Any]:
        if address not in self.health:
            raise LinkClosed("it is away")
        return [
            self.health[address].section() if b"INFO" in each else address.encode()
            for each in commands
        ]


def test_a_worker_that_is_not_well_is_asked_only_where_nobody_else_could_answer() -> None:
    links = FakeLinks(a=Health(lag_s=9.0), b=Health())
    workers = Workers(links)  # type: ignore[arg-type]
    watch = HealthWatch(workers, lambda: frozenset({"a", "b", "gone"}))

    async def ask() -> list[Any]:
        asked = [Asking(b"x", "a", lambda: ("b",)), Asking(b"x", "a"), Asking(b"x", "b")]
        await workers.ask(asked, 1.0)
        return [each.reply for each in asked]

    async def run() -> None:
        assert await ask() == [b"a", b"a", b"b"]
        await watch.look()
        assert await ask() == [b"b", b"a", b"b"]
        assert set(workers.suspects) == {"gone"}
        links.health["a"] = Health()
        await watch.look()
        assert await ask() == [b"a", b"a", b"b"]

    asyncio.run(run())


def test_a_worker_that_is_gone_is_forgotten() -> None:
    links = FakeLinks(a=Health(disk=1.0))
    workers = Workers(links)  # type: ignore[arg-type]
    there = {"a"}
    watch = HealthWatch(workers, lambda: frozenset(there))
    asyncio.run(watch.look())
    assert set(workers.poor) == {"a"}
    there.clear()
    asyncio.run(watch.look())
    assert not workers.poor
