"""The handshake of two workers: TLS if the run has certificates, then a hello with the token and
the address at which the caller itself is called, so that one connection serves both directions.

A silent connection waits in the front, with its limits and deadlines. A handshake may wait and runs
on a thread of its own: a caller that has not shown that it belongs to the pipeline never reaches
the loop.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from time import monotonic

from millwheel.adapters.front import limits as front_limits
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front, listening, shaken
from millwheel.adapters.front.visitors import Visitor, VisitPhase
from millwheel.adapters.grpc.certificates import Certificates, RenewedContext
from millwheel.adapters.grpc.security import NAME, Security, check_listen

log = logging.getLogger("millwheel.security")

_GREETING = b"millwheel-exchange-2\n"
_WELCOME, _REFUSED = b"+", b"-"
_LONGEST_TOKEN = 4096  # characters of a token that a stranger may make us read
_LONGEST_ADDRESS = 512  # bytes of the address of a caller
# for one read or write of a handshake; the front has a deadline for the whole
_HELLO_TIMEOUT_S = 10.0
_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 5),
    ("TCP_KEEPINTVL", 1),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 8_000),
)
"""A peer whose machine is gone is noticed after eight seconds; a process that dies is noticed at
once."""


class RefusedError(ConnectionError):
    """The other side answered and refuses the connection."""


class Handshakes:
    """Lets workers in. ``on_open`` gets each connected socket and the address of the caller, on a
    thread of its own."""

    def __init__(
        self,
        listen: str,
        on_open: Callable[[socket.socket, str], None],
        security: Security | None = None,
        limits: FrontLimits | None = None,
    ) -> None:
        """``listen`` is host:port. Raises SetupError if it is not available, or would be open to
        everybody."""
        check_listen(listen, security)
        self._on_open = on_open
        self._refusals = RefusalLog(log)
        self._security = security
        tls = security.tls if security else None
        self._tls = (
            RenewedContext(tls, lambda now: _context(now, ssl.PROTOCOL_TLS_SERVER)) if tls else None
        )
        bound = listening(listen, "cannot listen on", "; choose another address or port")
        self.address = f"{listen.rpartition(':')[0]}:{bound.getsockname()[1]}"
        self._front = Front(bound, limits or front_limits.exchange(), self._take_over, "exchange")
        self._front.start()

    def close(self) -> None:
        """Accept no more connections."""
        self._front.close()

    def _admits(self, token: bytes) -> bool:
        return not token if self._security is None else self._security.admits(token, self.address)

    def _take_over(self, caller: socket.socket, visitor: Visitor) -> None:
        threading.Thread(
            target=self._hello, args=(caller, visitor), name="exchange-hello", daemon=True
        ).start()

    def _hello(self, caller: socket.socket, visitor: Visitor) -> None:
        try:
            _prepare(caller)
            if self._tls is not None:
                caller = shaken(self._tls.now(), caller, visitor)
            problem, address = _read_hello(caller, self._admits)
            if problem:
                self._refusals.warn(
                    "Refused a worker's connection from %s: %s.", visitor.address, problem
                )
                caller.sendall(_REFUSED)
                caller.close()
            elif not self._front.advance(visitor, VisitPhase.ADMITTED):
                raise ConnectionError("it took too long, or had to make room for others")
            else:
                caller.sendall(_WELCOME)
                self._on_open(caller, address)
        except OSError as ex:
            self._refusals.warn(
                "A connection from %s ended before it was a worker's: %s.", visitor.address, ex
            )
            caller.close()
        finally:
            # it belongs to the loop, which has its own deadlines, or is closed
            self._front.leave(visitor)


def dial(address: str, security: Security | None = None, own_address: str = "") -> socket.socket:
    """A connected socket past its hello, which gives the peer ``own_address``. Raises OSError;
    RefusedError when the other side refuses us."""
    connected = socket.create_connection(_host_port(address), timeout=_HELLO_TIMEOUT_S)
    try:
        _prepare(connected)
        if security is not None and security.tls is not None:
            tls = _context(security.tls.current(), ssl.PROTOCOL_TLS_CLIENT)
            connected = tls.wrap_socket(connected, server_hostname=NAME)
        token = security.shown_at(address).encode() if security else b""
        connected.sendall(
            _GREETING
            + b"".join(
                len(part).to_bytes(2, "little") + part for part in (token, own_address.encode())
            )
        )
        answer = connected.recv(1)
        if answer != _WELCOME:
            why = "it requires another token" if answer == _REFUSED else "it hung up"
            raise RefusedError(f"the worker at {address} refused the connection: {why}")
    except BaseException:
        connected.close()
        raise
    return connected


def _read_hello(caller: socket.socket, admits: Callable[[bytes], bool]) -> tuple[str, str]:
    """The reason to refuse a hello, "" if there is none; and the address of the caller."""
    if _exactly(caller, len(_GREETING)) != _GREETING:
        return "it does not use the protocol of this version", ""
    size = int.from_bytes(_exactly(caller, 2), "little")
    if size > _LONGEST_TOKEN:
        return "a wrong token", ""
    token = _exactly(caller, size)
    if not admits(token):
        return "a wrong token" if token else "no token", ""
    size = int.from_bytes(_exactly(caller, 2), "little")
    if size > _LONGEST_ADDRESS:
        return "an address that is too long", ""
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


def _context(tls: Certificates, side: int) -> ssl.SSLContext:
    """A context for one side; both show a certificate of our CA."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=tls.ca.decode("ascii"))
    tls.load_into(context)
    return context


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


_PAUSE_S = 1.0  # between two lines: thousands of refusals must not fill a disk


class RefusalLog:
    """Writes the first refusal, and then at most one in each second, with the number of the omitted
    ones."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._again_s = 0.0
        self._left_out = 0

    def warn(self, text: str, *values: object) -> None:
        """Write a line, or count it (any thread)."""
        with self._lock:
            now_s = monotonic()
            if now_s < self._again_s:
                self._left_out += 1
                return
            self._again_s = now_s + _PAUSE_S
            left_out, self._left_out = self._left_out, 0
        more = f" {left_out} others were refused since the last line." if left_out else ""
        self._log.warning(text + more, *values)
