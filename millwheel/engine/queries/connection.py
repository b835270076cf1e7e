"""One connection of the Redis protocol: its commands are executed in order, and their replies are
sent in that order.

A client costs a bounded amount of memory. Commands are executed while there is room for their
replies. Otherwise, because an earlier question waits or the client does not read its replies, they
wait unexecuted and nothing more is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from millwheel.engine.queries import resp
from millwheel.engine.queries.commands import Session
from millwheel.engine.queries.model import Found, Query
from millwheel.engine.queries.replies import Gather, Pending

MAX_WAITING = 20_000
"""The most unanswered queries of one connection: nothing more is executed or read from it
meanwhile."""
MAX_WAITING_BYTES = 1 << 20
"""The most bytes of replies that wait for one before them; likewise."""
MAX_UNSENT_BYTES = 1 << 20
"""The most bytes of replies that wait for the client to take them; likewise."""
MAX_OUTPUT_BYTES = 16 << 20
"""The most bytes of replies that a client has not read. Beyond that, after questions with large
replies, its connection is closed."""
MAX_STRANGE_BYTES = 64 << 10
"""The largest command before AUTH, where a token is asked for."""
_STRANGE_PIECE_BYTES = 1 << 10  # read at once before the client is authenticated
MAX_STRANGE_COMMANDS = 16
"""The most commands before AUTH: a client needs two or three, and others wait for the same loop."""
_log = logging.getLogger("millwheel.queries")


class Slot:
    """The position of a reply in the order of a connection's commands."""

    __slots__ = ("data", "pending")

    def __init__(self, data: bytes | None, pending: Pending | None = None) -> None:
        self.data = data
        self.pending = pending


class ConnectionServer(Protocol):
    """The server as a connection needs it."""

    def admits(self, connection: Connection) -> bool:
        """Whether there is room for a client that has sent its first command, with the token if one
        is required."""

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""

    def ask(self, connection: Connection, slot: Slot, queries: Sequence[Query]) -> None:
        """Ask the worker's loop."""

    def gather(self, connection: Connection, slot: Slot, request: Gather) -> None:
        """Ask other workers for their parts of a reply."""


class Connection(asyncio.Protocol):
    """``session`` executes its commands."""

    def __init__(self, server: ConnectionServer, session: Session) -> None:
        self._server = server
        self._session = session
        self._is_in = False
        self._strange = 0  # commands before AUTH
        self._reader = resp.CommandReader()
        self._commands: deque[list[bytes] | resp.ProtocolError] = deque()
        self._slots: deque[Slot] = deque()
        self._waiting = 0
        self._held = 0  # bytes of the replies in slots
        self._unsent = False
        self._reads = True
        self._transport: Any = None

    @property
    def greeted(self) -> bool:
        """Whether the client has sent a command of this protocol."""
        return self._session.greeted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._slots.clear()
        self._commands.clear()

    def abort(self) -> None:
        """Close the connection at once, if it is open."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._unsent = True

    def resume_writing(self) -> None:
        self._unsent = False
        self.go_on()

    def data_received(self, data: bytes) -> None:
        at = 0
        while len(data) - at > _STRANGE_PIECE_BYTES and not self._session.admitted:
            self._take(data[at : at + _STRANGE_PIECE_BYTES])
            at += _STRANGE_PIECE_BYTES
            if self._session.over:
                return
        self._take(data[at:] if at else data)

    def _take(self, data: bytes) -> None:
        if self._session.over:
            return
        self._reader.most_bytes = (
            resp.MAX_COMMAND_BYTES if self._session.admitted else MAX_STRANGE_BYTES
        )
        self._commands.extend(self._reader.feed(data))
        self.go_on()

    def go_on(self) -> None:
        """Send the replies that are complete and in order, and execute the commands that have room
        for theirs."""
        self._flush()
        while self._commands and self._has_room() and not self._session.over:
            while self._commands and self._has_room() and not self._session.over:
                self._execute(self._commands.popleft())
            self._flush()
        if self._session.over:
            self._commands.clear()
            if not self._slots:
                self._transport.close()
        self._read_on(not self._commands and self._has_room() and not self._session.over)

    def _has_room(self) -> bool:
        return self._waiting <= MAX_WAITING and self._held <= MAX_WAITING_BYTES and not self._unsent

    def _read_on(self, active: bool) -> None:
        if active is not self._reads and not self._transport.is_closing():
            self._reads = active
            (self._transport.resume_reading if active else self._transport.pause_reading)()

    def _execute(self, command: list[bytes] | resp.ProtocolError) -> None:
        reply = (
            self._session.refuse(command)
            if isinstance(command, Exception)
            else self._session.execute(command)
        )
        if not self._is_in and self._session.greeted and self._session.admitted:
            self._is_in = True
            if not self._server.admits(self):
                self._session.over = True
                reply = resp.error("max number of clients reached")
        if not self._session.admitted:
            self._strange += 1
            if self._strange > MAX_STRANGE_COMMANDS:
                self._session.over = True
        if isinstance(reply, bytes):
            self._held += len(reply)
            self._slots.append(Slot(reply))
            return
        slot = Slot(None, reply)
        self._slots.append(slot)
        self._waiting += len(reply.queries)
        self._server.ask(self, slot, reply.queries)

    def answered(self, slot: Slot, outcomes: Sequence[Found]) -> None:
        """Take the outcomes of the queries of a command."""
        assert slot.pending is not None
        try:
            reply = slot.pending.reply(outcomes)
        except Exception:
            reply = failed_reply()
        if isinstance(reply, Gather):
            self._server.gather(self, slot, reply)  # the command still counts as waiting
        else:
            self._complete(slot, reply)

    def gathered(self, slot: Slot, reply: bytes) -> None:
        """Take the reply that includes the answers of other workers."""
        self._complete(slot, reply)
        self.go_on()

    def _complete(self, slot: Slot, reply: bytes) -> None:
        assert slot.pending is not None
        slot.data = reply
        self._held += len(reply)
        self._waiting -= len(slot.pending.queries)

    def _flush(self) -> None:
        slots, out = self._slots, []
        while slots and slots[0].data is not None:
            out.append(slots.popleft().data)
        if not out:
            return
        data = b"".join(out)  # type: ignore[arg-type]
        self._held -= len(data)
        if not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > MAX_OUTPUT_BYTES:
                _log.warning("a client does not take its replies: its connection ends")
                self._transport.abort()


def failed_reply() -> bytes:
    """The reply to a command that failed through a defect in this server; logs the exception being
    handled."""
    _log.exception("a reply failed")
    return resp.error("the reply failed; the worker's log says why")
