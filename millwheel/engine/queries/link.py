"""Connections to workers: one for each address, shared by all callers, pipelined. For one asyncio
loop."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from millwheel.adapters.grpc.security import Security, is_loopback
from millwheel.engine.queries.resp import array, bulk, hiredis_reader

_CONNECT_S = 1.0
"""The timeout of a connect (s); all workers are near."""
MAX_ABANDONED = 1_000
"""The most commands without a reply whose callers have given up. Beyond that the worker counts as
hung: the connection is closed and everything kept for it is freed."""


class LinkClosed(ConnectionError):
    """The worker has closed the connection, or refused it. Every question may be asked again:
    queries change nothing."""


class _Call:
    """The commands of one caller, and their replies."""

    __slots__ = ("done", "missing", "replies")

    def __init__(self, missing: int, done: asyncio.Future[list[Any]]) -> None:
        self.missing = missing
        self.replies: list[Any] = []
        self.done = done


class Link(asyncio.Protocol):
    """One connection. Replies come in the order of commands; an error is a reply, too (an exception
    as a value)."""

    def __init__(self) -> None:
        self._reader = hiredis_reader()
        self._nothing = self._reader.gets()
        self._calls: deque[_Call] = deque()
        self._abandoned = 0
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()

    @property
    def usable(self) -> bool:
        """Whether commands can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.done.done():
                call.done.set_exception(LinkClosed(str(exc or "the worker ended the connection")))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not self._nothing:
                self._replied(reply)
        except Exception:  # hiredis raises its own exceptions for a malformed reply
            self._transport.abort()

    def _replied(self, reply: Any) -> None:
        if not self._calls:
            self._transport.abort()  # a reply without a command: the order is lost
            return
        call = self._calls[0]
        call.missing -= 1
        if call.done.done():  # its caller has given up
            self._abandoned -= 1
        else:
            call.replies.append(reply)
        if not call.missing:
            self._calls.popleft()
            if not call.done.done():
                call.done.set_result(call.replies)

    async def call(self, commands: Sequence[bytes]) -> list[Any]:
        """The replies to packed commands. Raises LinkClosed. It may be cancelled; the order of
        later replies stays right."""
        if not self.usable:
            raise LinkClosed("the connection is closed")
        call = _Call(len(commands), self._loop.create_future())
        self._calls.append(call)
        self._transport.write(b"".join(commands))
        try:
            return await call.done
        except asyncio.CancelledError:
            self._abandon(call)
            raise

    def _abandon(self, call: _Call) -> None:
        """Give up a call for its caller. It stays in the queue until its replies have come, because
        replies are matched by order."""
        call.replies.clear()
        self._abandoned += call.missing
        if self._abandoned > MAX_ABANDONED:
            self._transport.abort()

    def close(self) -> None:
        """Close it; callers that wait get LinkClosed."""
        if self._transport is not None:
            self._transport.abort()


class Links:
    """Connections by address (host:port), opened when needed. ``password_of`` gives the password
    for an address ("": none), ``tls`` the context for it (None: plain text)."""

    def __init__(
        self,
        password_of: Callable[[str], str] = lambda address: "",
        tls: Callable[[str], ssl.SSLContext | None] = lambda address: None,
    ) -> None:
        self._shown = password_of
        self._tls = tls
        self._links: dict[str, asyncio.Task[Link]] = {}

    async def call(self, address: str, commands: Sequence[bytes]) -> list[Any]:
        """The replies of the worker at ``address``. Raises LinkClosed."""
        opening = self._links.get(address)
        if opening is None or (opening.done() and not _usable(opening)):
            opening = self._links[address] = asyncio.ensure_future(self._open(address))
        link = await asyncio.shield(opening)
        return await link.call(commands)

    def keep(self, addresses: frozenset[str]) -> None:
        """Close the connections to all other addresses."""
        for address in self._links.keys() - addresses:
            opening = self._links.pop(address)
            if _usable(opening):
                opening.result().close()

    def close(self) -> None:
        """Close all."""
        self.keep(frozenset())

    async def _open(self, address: str) -> Link:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(
            Link, host.strip("[]"), int(port), ssl=self._tls(address)
        )
        try:
            _, link = await asyncio.wait_for(connecting, _CONNECT_S)
            if password := self._shown(address):
                (reply,) = await asyncio.wait_for(link.call([packed("AUTH", password)]), _CONNECT_S)
                if isinstance(reply, Exception):
                    link.close()
                    raise LinkClosed(f"{address} refuses our token: {reply}")
        except (OSError, asyncio.TimeoutError) as ex:
            raise LinkClosed(f"{address} cannot be reached: {ex or 'it does not answer'}") from ex
        return link


def _usable(opening: asyncio.Task[Link]) -> bool:
    return (
        opening.done()
        and not opening.cancelled()
        and opening.exception() is None
        and opening.result().usable
    )


def packed(*words: str) -> bytes:
    """A command as bytes."""
    return array([bulk(word.encode()) for word in words])


def json_of(reply: bytes) -> Any:
    """The value of a JSON reply."""
    return msgspec.json.decode(reply)


def secured_links(security: Security | None) -> Links:
    """Connections that show the token, by TLS except to workers on the loopback."""
    if security is None:
        return Links()
    if security.tls is None:
        return Links(security.proof)
    from millwheel.adapters.grpc.certificates import client_context

    context = client_context(security.tls)

    def tls(address: str) -> ssl.SSLContext | None:
        return None if is_loopback(address.rpartition(":")[0]) else context

    return Links(lambda address: security.token if tls(address) else security.proof(address), tls)
