"""Connections to workers, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.engine.queries.link import (
    MAX_ABANDONED,
    LinkClosed,
    Links,
    packed,
    secured_links,
)
from millwheel.engine.queries.model import AskedQueries
from millwheel.engine.queries.server import QueryServer
from millwheel.launch.certificates import make_set
from tests.unit.engine.queries.test_commands import ONE
from tests.unit.engine.queries.test_server import SERVICE, WAIT_S, fine


def run(server: QueryServer, story: Callable[[Links], Awaitable[None]]) -> None:
    """A story of links to a server."""

    async def told() -> None:
        links = Links()
        await story(links)
        links.close()
        await asyncio.sleep(0)  # the sockets close

    server.start()
    try:
        asyncio.run(told())
    finally:
        server.stop()


def test_replies_come_in_the_order_of_calls_and_who_stops_waiting_leaves_it() -> None:
    server = QueryServer("127.0.0.1:0", SERVICE, lambda asked: None, fine)

    async def story(links: Links) -> None:
        with pytest.raises(asyncio.TimeoutError):  # nobody answers this
            await asyncio.wait_for(links.call(server.address, [packed("GET", "clicks:1:1h")]), 0.05)
        one = asyncio.ensure_future(
            links.call(server.address, [packed("PING", "a"), packed("PING", "b")])
        )
        await asyncio.sleep(0)
        links.close()
        await asyncio.sleep(0)  # the sockets close
        with pytest.raises(LinkClosed):
            await one
        assert await links.call(server.address, [packed("PING", "c"), packed("NONE")]) == [
            b"c",
            _Error("ERR"),
        ]

    run(server, story)


def test_a_worker_that_hangs_is_given_up_with_all_that_nobody_waits_for() -> None:
    server = QueryServer("127.0.0.1:0", SERVICE, lambda asked: None, fine)

    async def story(links: Links) -> None:
        waiting = asyncio.ensure_future(links.call(server.address, [packed("GET", "clicks:1:1h")]))
        for _ in range(2):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(
                    links.call(server.address, [packed("GET", "clicks:1:1h")] * MAX_ABANDONED), 0.05
                )
        with pytest.raises(LinkClosed):
            await waiting
        assert await links.call(server.address, [packed("PING", "c")]) == [b"c"]

    run(server, story)


def test_replies_that_nobody_waits_for_count_no_more_once_they_came() -> None:
    asked: SimpleQueue[AskedQueries] = SimpleQueue()
    server = QueryServer("127.0.0.1:0", SERVICE, asked.put, fine)

    async def story(links: Links) -> None:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(
                    links.call(
                        server.address, [packed("GET", "clicks.n:1:1h")] * (MAX_ABANDONED // 2)
                    ),
                    0.05,
                )
            missing = MAX_ABANDONED // 2
            while missing:
                batch = await asyncio.to_thread(asked.get, timeout=WAIT_S)
                batch.reply([ONE] * len(batch.queries))
                missing -= len(batch.queries)
            first = links._links[server.address].result()
            assert await links.call(server.address, [packed("PING", "c")]) == [b"c"]
            assert (first._abandoned, first.usable) == (0, True)

    run(server, story)


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


def test_without_security_nothing_is_shown_and_with_it_tls_is_spoken_off_the_loopback(
    tmp_path: Path,
) -> None:
    assert secured_links(None)._shown("10.0.0.1:1") == ""
    security = load_security(make_set(str(tmp_path / "set")), "client")
    assert security is not None
    links, near, far = secured_links(security), "127.0.0.1:7", "10.0.0.1:7"
    assert links._tls(near) is None
    assert links._tls(far) is not None
    assert (links._shown(near), links._shown(far)) == (security.proof(near), security.token)
    assert secured_links(Security(security.token))._shown(near) == security.proof(near)
