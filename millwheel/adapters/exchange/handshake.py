"""How a connection between two workers comes about: TLS if there is a security folder, then a hello with the token and
the address at which the caller itself is called, so that one connection serves both directions.

Everything here may wait and runs on threads of its own with a deadline: whoever has not shown that it belongs to the
pipeline never reaches the loop.
"""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from millwheel.adapters.grpc.security import NAME, Security, check_listen
from millwheel.errors import SetupError

log = logging.getLogger("millwheel.security")

_GREETING = b"millwheel-exchange-2\n"
_WELCOME, _REFUSED = b"+", b"-"
_LONGEST_TOKEN = 4096  # characters of a token that a stranger may make us read
_LONGEST_ADDRESS = 512  # bytes of the address of a caller
_HELLO_TIMEOUT_S = 10.0  # a caller that has not shown its token by then is hung up on
_ACCEPT_PAUSE_S = 0.05  # between tries to accept when that fails, for example without file descriptors
_MOST_HELLOS = 64
"""More callers than this at a time are hung up on: each hello has a thread."""
_KEEP_ALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 8_000))
"""A peer whose machine is gone is noticed after eight seconds; a process that dies is noticed at once."""


class RefusedError(ConnectionError):
    """The other side answered and refuses the connection."""


class _Wrapped(ssl.SSLSocket):
    """Closes itself when it is garbage-collected, even if it was half made because the caller hung up meanwhile."""

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


class Handshakes:
    """Lets workers in. ``on_open`` gets each connected socket and the address of the caller, on a thread of its own."""

    def __init__(
        self, listen: str, on_open: Callable[[socket.socket, str], None], security: Security | None = None
    ) -> None:
        """``listen`` is host:port. Raises SetupError if it is not available, or would be open to everybody."""
        check_listen(listen, security)
        self._on_open = on_open
        self._token = security.token.encode() if security else b""
        self._tls = _context(security, ssl.PROTOCOL_TLS_SERVER) if security else None
        self._hellos = threading.BoundedSemaphore(_MOST_HELLOS)
        host, port = _host_port(listen)
        try:
            self._socket = socket.create_server((host, port), family=_family(host), backlog=256)
        except OSError as ex:
            raise SetupError(f"cannot listen on {listen}: {ex.strerror or ex}; choose another address or port") from ex
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, name="exchange-handshake", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        _hang_up(self._socket)  # wakes the thread that accepts
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, host = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(_ACCEPT_PAUSE_S)  # the caller hung up, or we have no file descriptor at the moment
                continue
            if not self._hellos.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._hello, args=(caller, host[0]), name="exchange-hello", daemon=True).start()

    def _hello(self, caller: socket.socket, host: str) -> None:
        try:
            _prepare(caller)
            caller.getpeername()  # fails if the caller has hung up: a TLS wrapper would then be lost half made
            if self._tls is not None:
                caller = self._tls.wrap_socket(caller, server_side=True, do_handshake_on_connect=False)
            problem, address = self._heard(caller)
            if problem:
                log.warning("Refused a worker's connection from %s: %s.", host, problem)
                caller.sendall(_REFUSED)
                caller.close()
            else:
                caller.sendall(_WELCOME)
                self._on_open(caller, address)
        except OSError as ex:
            log.warning("A connection from %s ended before it was a worker's: %s.", host, ex)
            caller.close()
        finally:
            self._hellos.release()

    def _heard(self, caller: socket.socket) -> tuple[str, str]:
        """As :func:`_heard`. Raises OSError if the handshake takes too long."""
        hurry = threading.Timer(_HELLO_TIMEOUT_S, _hang_up, (caller,))
        hurry.start()
        try:
            if isinstance(caller, ssl.SSLSocket):
                caller.do_handshake()
            return _heard(caller, self._token)
        finally:
            hurry.cancel()


def _hang_up(caller: socket.socket) -> None:
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def dial(address: str, security: Security | None = None, mine: str = "") -> socket.socket:
    """A connected socket past its hello, in which we say that ``mine`` is our own address. Raises OSError; RefusedError
    when the other side does not want us."""
    connected = socket.create_connection(_host_port(address), timeout=_HELLO_TIMEOUT_S)
    try:
        _prepare(connected)
        if security is not None:
            tls = _context(security, ssl.PROTOCOL_TLS_CLIENT)
            connected = tls.wrap_socket(connected, server_hostname=NAME)
        token = security.token.encode() if security else b""
        connected.sendall(
            _GREETING + b"".join(len(part).to_bytes(2, "little") + part for part in (token, mine.encode()))
        )
        answer = connected.recv(1)
        if answer != _WELCOME:
            why = "it wants another token" if answer == _REFUSED else "it hung up"
            raise RefusedError(f"the worker at {address} refused the connection: {why}")
    except BaseException:
        connected.close()
        raise
    return connected


def _heard(caller: socket.socket, token: bytes) -> tuple[str, str]:
    """Why a hello is refused, "" if it is not; and the address of the caller."""
    if _exactly(caller, len(_GREETING)) != _GREETING:
        return "it does not speak as a worker of this version does", ""
    size = int.from_bytes(_exactly(caller, 2), "little")
    if size > _LONGEST_TOKEN:
        return "a wrong token", ""
    shown = _exactly(caller, size)
    if not hmac.compare_digest(shown, token):
        return "a wrong token" if shown else "no token", ""
    size = int.from_bytes(_exactly(caller, 2), "little")
    if size > _LONGEST_ADDRESS:
        return "an address that is none", ""
    return "", _exactly(caller, size).decode("utf-8", "replace")


def _exactly(caller: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = caller.recv(count - len(got))
        if not more:
            raise ConnectionError("it hung up")
        got += more
    return got


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(_HELLO_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _context(security: Security, side: int) -> ssl.SSLContext:
    """Both sides show a certificate of our CA. OpenSSL reads ours from a file, which is ours alone and gone at once."""
    context = ssl.SSLContext(side)
    context.sslsocket_class = _Wrapped
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=security.ca.decode("ascii"))
    with tempfile.NamedTemporaryFile() as file:
        file.write(security.certificate + b"\n" + security.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
