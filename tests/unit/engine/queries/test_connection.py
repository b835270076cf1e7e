"""A connection without a socket: what a client may cost, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService, Session
from millwheel.engine.queries.connection import (
    MAX_STRANGE_BYTES,
    MAX_STRANGE_COMMANDS,
    MAX_UNSENT_BYTES,
    MAX_WAITING_BYTES,
    Connection,
    Slot,
)
from millwheel.engine.queries.model import Query
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.replies import Gather
from tests.unit.engine.queries.test_commands import ONE

REQUEST = (
    b"%s / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: keep-alive\r\nContent-Type: text/plain\r\n"
    b"Origin: http://evil.example\r\n\r\n"
)
QUESTION = b"*2\r\n$3\r\nGET\r\n$15\r\nclicks.n:42:1h \r\n"


class Asked:
    """A server that keeps what it is asked."""

    def __init__(self) -> None:
        self.slots: list[tuple[Slot, Sequence[Query]]] = []

    def admits(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None: ...

    def ask(self, connection: Connection, slot: Slot, queries: Sequence[Query]) -> None:
        self.slots.append((slot, queries))

    def gather(self, connection: Connection, slot: Slot, request: Gather) -> None: ...


class Transport:
    """The other end of a connection. ``takes``: it reads what is sent."""

    def __init__(self, takes: bool = True) -> None:
        self.sent, self.reads, self.ended, self._takes = bytearray(), True, False, takes
        self.of: Connection | None = None
        self.high = 1 << 16

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.sent += data
        if not self._takes and len(self.sent) > self.high and self.of is not None:
            self.of.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 0 if self._takes else len(self.sent)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    abort = close


def connected(takes: bool = True, token: str = "") -> tuple[Connection, Transport, Asked]:
    server, transport = Asked(), Transport(takes)
    admits = (lambda shown: shown == token.encode()) if token else None
    service = QueryService(
        Catalog({"clicks": None}, frozenset({"clicks"})),
        ClusterMap("w0", "clicks"),
        lambda: 1,
        admits,
    )
    connection = Connection(server, Session(service))
    connection.connection_made(transport)  # type: ignore[arg-type]
    transport.of = connection
    return connection, transport, server


@pytest.mark.parametrize("method", [b"POST", b"GET", b"PUT", b"HEAD", b"OPTIONS", b"post"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_a_web_page_sends_is_never_executed(method: bytes, size: int) -> None:
    connection, transport, server = connected()
    data = REQUEST % method + QUESTION * 3
    for start in range(0, len(data), size):
        connection.data_received(data[start : start + size])
    assert not server.slots
    assert transport.ended
    assert transport.sent.startswith(b"-ERR ")
    assert transport.sent.count(b"\r\n") == 1


@pytest.mark.parametrize("word", [b"Host: 127.0.0.1", b"POST x", b"host:"])
def test_words_of_http_end_a_connection_that_spoke_the_protocol_before(word: bytes) -> None:
    connection, transport, server = connected()
    connection.data_received(b"PING\r\n" + word + b"\r\n" + QUESTION)
    assert transport.sent.startswith(b"+PONG\r\n-ERR ")
    assert transport.ended
    assert not server.slots


@pytest.mark.parametrize(
    "first",
    [
        b"*x\r\n",
        b"*1\r\n:1\r\n",
        b"\x16\x03\x01\x02\x00\r\n",
        b"EHLO me\r\n",
        b"*1\r\n$9999999\r\n" + b"x" * 70_000,
    ],
)
def test_another_protocol_ends_a_connection_before_its_first_command(first: bytes) -> None:
    connection, transport, server = connected(token="t")
    connection.data_received(first)
    connection.data_received(b"x" * MAX_STRANGE_BYTES * 200 + b"\r\n")
    connection.data_received(QUESTION)
    assert transport.ended
    assert not server.slots


def test_a_client_library_may_send_a_command_that_is_not_known_here() -> None:
    connection, transport, server = connected()
    connection.data_received(b"*1\r\n$7\r\nLATENCY\r\n" + QUESTION)
    assert not transport.ended
    assert len(server.slots) == 1


@pytest.mark.parametrize(
    "command", [b"*1\r\n$7\r\nCOMMAND\r\n", b"COMMAND\r\n", b"*1\r\n$4\r\nINFO\r\n"]
)
def test_replies_behind_a_question_that_waits_are_bounded(command: bytes) -> None:
    connection, transport, server = connected()
    connection.data_received(QUESTION)
    sent = 0
    while transport.reads and sent < 10_000:
        connection.data_received(command * 1_000)
        sent += 1_000
    assert not transport.reads
    assert connection._held < MAX_WAITING_BYTES + 10_000
    assert len(connection._commands) <= 1_000  # of the last read
    slot, _queries = server.slots[0]
    connection.answered(slot, [ONE])
    connection.go_on()
    assert transport.reads  # all of them are answered then
    assert transport.sent.count(b"redis_version" if b"INFO" in command else b"mw.query") == sent


def test_a_client_that_takes_no_replies_is_read_no_further() -> None:
    connection, transport, _ = connected(takes=False)
    for _ in range(20):
        if transport.reads:
            connection.data_received(b"*1\r\n$7\r\nCOMMAND\r\n" * 1_000)
    assert not transport.reads
    assert len(transport.sent) < 3 * MAX_UNSENT_BYTES
    connection.resume_writing()
    assert not transport.ended


def test_a_command_before_auth_is_small() -> None:
    connection, transport, _ = connected(token="t")
    connection.data_received(b"*2\r\n$4\r\nAUTH\r\n$1\r\nt\r\n")
    connection.data_received(b"*2\r\n$4\r\nPING\r\n$100000\r\n" + b"x" * 100_000 + b"\r\n")
    assert len(transport.sent) > 100_000
    stranger, transport, _ = connected(token="t")
    stranger.data_received(b"*2\r\n$4\r\nPING\r\n$100000\r\n" + b"x" * 1_000)
    stranger.data_received(b"x" * 99_000 + b"\r\n")
    assert b"at most" in transport.sent
    assert transport.ended


def test_a_stranger_executes_few_commands() -> None:
    connection, transport, _ = connected(token="the-token-of-this-pipeline")
    connection.data_received(b"PING\r\n" * 100_000)
    assert transport.sent.count(b"+PONG") <= MAX_STRANGE_COMMANDS + 1
    assert transport.ended


def test_what_follows_auth_in_the_same_piece_is_executed() -> None:
    connection, transport, _ = connected(token="the-token-of-this-pipeline")
    connection.data_received(b"AUTH the-token-of-this-pipeline\r\n" + b"PING\r\n" * 10_000)
    assert transport.sent.count(b"+PONG") == 10_000
    assert not transport.ended
