"""Listening sockets, and one thread for each that keeps strangers until they have sent something.

Only a connection whose first byte is there reaches the server behind the front; silent ones cost a
socket and an entry of a table. The thread also hangs up on any visitor that exceeds a deadline
later, whoever reads that connection by then: a thread that waits for it, or a loop, sees its end.
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.visitors import Visitor, Visitors, VisitPhase
from millwheel.errors import SetupError

log = logging.getLogger("millwheel.security")

_BACKLOG = 511  # connections that wait in the kernel while the front is full; as Redis has
_PAUSE_S = 0.05  # between tries to accept when that fails, for example without file descriptors
_AT_ONCE = 64  # connections that are accepted before the deadlines of others are looked at

TakeOver = Callable[[socket.socket, Visitor], None]
"""Takes over a connection whose first byte can be read. Called on the front's thread; must not
wait."""


def listening(address: str, cannot: str, instead: str = "") -> socket.socket:
    """A socket that listens on ``address`` (host:port; port 0 takes a free one). Raises SetupError,
    which begins with ``cannot`` and ends with ``instead``."""
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        return socket.create_server((bare, int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SetupError(f"{cannot} {address}: {error.strerror or error}{instead}") from error


def hang_up(connection: socket.socket) -> None:
    """End a connection that another thread or loop may be reading; that one closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Front:
    """Accepts the connections of one listening socket, which it owns, and passes each on with its
    first byte.

    The server behind it reports with :meth:`advance` and :meth:`leave`, on any thread, how far each
    visitor is."""

    def __init__(
        self, bound: socket.socket, limits: FrontLimits, take_over: TakeOver, name: str
    ) -> None:
        self._socket = bound
        self._take_over = take_over
        self._visitors = Visitors(limits)
        self._lock = threading.Lock()
        self._wake_out, self._wake_in = socket.socketpair()
        self._closed = False
        self._accepting = False
        self._again_s = 0.0
        self._sleeps_until_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name=f"{name}-front", daemon=True)

    @property
    def limits(self) -> FrontLimits:
        """The limits of its visitors."""
        return self._visitors.limits

    def start(self) -> None:
        """Accept from now on, on a thread of its own."""
        self._socket.setblocking(False)
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        """Accept no more, and hang up on silent connections. Idempotent."""
        self._closed = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for each in (self._socket, self._wake_in, self._wake_out, self._selector):
            each.close()

    def advance(self, visitor: Visitor, phase: VisitPhase) -> bool:
        """Report a visitor's phase. False if there is no room there, or if it was hung up on."""
        now_s = monotonic()
        with self._lock:
            done = self._visitors.advance(visitor, phase, now_s)
            limit_s = self._visitors.limit_s(phase)
            early = limit_s is not None and now_s + limit_s < self._sleeps_until_s
        if early:
            self._wake()
        return done

    def leave(self, visitor: Visitor) -> None:
        """Report that a visitor has gone, or is no longer a matter of the front."""
        with self._lock:
            self._visitors.leave(visitor)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"x")

    # --- the thread

    def _run(self) -> None:
        while not self._closed:
            self._accept_or_not(monotonic())
            for key, _ in self._selector.select(self._sleep_s()):
                if key.fileobj is self._socket:
                    self._accept()
                elif key.fileobj is self._wake_out:
                    self._wake_out.recv(4096)
                else:
                    self._on_readable(key.fileobj, key.data)  # type: ignore[arg-type]
            self._end_overdue()
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.fileobj, key.data)  # type: ignore[arg-type]

    def _sleep_s(self) -> float | None:
        with self._lock:
            due_s = self._visitors.next_due_s()
            until_s = math.inf if due_s is None else due_s
            if not self._accepting:
                until_s = min(until_s, self._again_s)
            self._sleeps_until_s = until_s
        return None if until_s == math.inf else max(0.0, until_s - monotonic())

    def _accept_or_not(self, now_s: float) -> None:
        """Leave newcomers in the kernel while there is no room."""
        accepts = now_s >= self._again_s
        if accepts == self._accepting:
            return
        self._accepting = accepts
        if accepts:
            self._selector.register(self._socket, selectors.EVENT_READ, None)
        else:
            self._selector.unregister(self._socket)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            with self._lock:
                room = self._visitors.make_room(monotonic())
            if room.wait_s:
                self._again_s = monotonic() + room.wait_s
                return
            if room.displaced is not None:
                room.displaced.hang_up()
            try:
                connection, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # the caller hung up, or there is no file descriptor at the moment
                self._again_s = monotonic() + _PAUSE_S
                return
            self._arrived(connection, str(peer[0]))

    def _arrived(self, connection: socket.socket, address: str) -> None:
        visitor = Visitor(
            address, partial(hang_up, connection), partial(_waits_to_be_read, connection)
        )
        with self._lock:
            room = self._visitors.arrive(visitor, monotonic())
        if room.displaced is not None:
            room.displaced.hang_up()
        if room.wait_s:
            connection.close()
        else:
            self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _on_readable(self, connection: socket.socket, visitor: Visitor) -> None:
        if visitor.left or not _has_byte(connection) or not self.advance(visitor, VisitPhase.HEAD):
            self._drop(connection, visitor)
            return
        self._selector.unregister(connection)
        try:
            self._take_over(connection, visitor)
        except Exception:  # the server behind us has ended, or there is no thread at the moment
            log.exception("A connection from %s could not be taken over.", visitor.address)
            connection.close()
            self.leave(visitor)

    def _drop(self, connection: socket.socket, visitor: Visitor) -> None:
        self._selector.unregister(connection)
        connection.close()
        self.leave(visitor)

    def _end_overdue(self) -> None:
        with self._lock:
            overdue = self._visitors.overdue(monotonic())
            for visitor in overdue:
                self._visitors.leave(visitor)
        for visitor in overdue:
            visitor.hang_up()


def _waits_to_be_read(connection: socket.socket) -> bool:
    """Whether a connection, which another thread or loop may be reading, has bytes that have not
    been read."""
    poller = select.poll()  # recv of a socket with a timeout would wait for it
    try:
        poller.register(connection, select.POLLIN)
        return bool(poller.poll(0))
    except (OSError, ValueError):  # it was closed
        return False


def _has_byte(connection: socket.socket) -> bool:
    """Whether a readable connection has a byte, and not its end."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


class GuardedSSLSocket(ssl.SSLSocket):
    """Closes itself when it is garbage-collected, even if it was half made because the caller hung
    up meanwhile."""

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def shaken(context: ssl.SSLContext, connection: socket.socket, visitor: Visitor) -> ssl.SSLSocket:
    """The connection after its TLS handshake; ``connection`` is used up. Raises OSError if it
    fails, or if the front hangs up on the visitor meanwhile."""
    context.sslsocket_class = GuardedSSLSocket
    # fails if the caller has hung up: a TLS wrapper would then be lost half made
    connection.getpeername()
    wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    visitor.hang_up = partial(hang_up, wrapped)
    if visitor.left:  # hung up on between the two sockets
        wrapped.close()
        raise ConnectionError("it took too long")
    try:
        wrapped.do_handshake()
    except BaseException:
        wrapped.close()
        raise
    return wrapped
