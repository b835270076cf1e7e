"""Connections to workers, over real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from millwheel.queries.peers.link import LinkClosed, Links, packed
from millwheel.queries.server import QueryServer
from tests.unit.queries.test_server import SERVICE, fine


def test_replies_come_in_the_order_of_calls_and_who_stops_waiting_leaves_it() -> None:
    server = QueryServer("127.0.0.1:0", SERVICE, lambda asked: None, fine)
    server.start()

    async def run() -> None:
        links = Links()
        with pytest.raises(asyncio.TimeoutError):  # nobody answers this
            await asyncio.wait_for(links.call(server.address, [packed("GET", "clicks:1:1h")]), 0.05)
        one = asyncio.ensure_future(links.call(server.address, [packed("PING", "a"), packed("PING", "b")]))
        await asyncio.sleep(0)
        links.close()
        with pytest.raises(LinkClosed):
            await one
        assert await links.call(server.address, [packed("PING", "c"), packed("NONE")]) == [b"c", _Error("ERR")]
        links.close()

    try:
        asyncio.run(run())
    finally:
        server.stop()


def test_a_worker_that_is_not_there_is_an_error_that_names_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    async def run() -> None:
        with pytest.raises(LinkClosed, match=f"{address} cannot be reached"):
            await Links().call(address, [packed("PING")])

    asyncio.run(run())


class _Error:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exception) and str(other).startswith(self.kind)
