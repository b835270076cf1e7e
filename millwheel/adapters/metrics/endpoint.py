"""The HTTP server of one process for ``/metrics``, and its health probes.

A silent connection waits in the front; a request has a thread for as long as it
takes. Off the loopback the server uses TLS. All pages require the run's token (``Authorization:
Bearer``), but for ``/metrics`` in a run without certificates, which serves the loopback only.
``/healthz`` and ``/readyz`` need no token: a kubelet has none, and they name processes and nodes
only. They are answered at any number of other requests.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from millwheel.adapters.front import limits as front_limits
from millwheel.adapters.front.browsers import BrowserRules, names_of
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front, listening, shaken
from millwheel.adapters.front.visitors import Visitor, VisitPhase
from millwheel.adapters.grpc.certificates import RenewedContext
from millwheel.adapters.grpc.security import Security, check_listen, is_loopback
from millwheel.adapters.metrics.text import CONTENT_TYPE

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger("millwheel.metrics")

Page = Callable[[], bytes]
Check = Callable[[], str]
"""The reason why a process is not well, or ""."""
HEALTHZ, READYZ, METRICS = "/healthz", "/readyz", "/metrics"


def well() -> str:
    """The check of a process that is well whenever it answers."""
    return ""


class Endpoint:
    """Serves ``pages`` by their paths, from :meth:`start` on until the process ends. ``healthy``
    and ``ready`` are the answers of ``/healthz`` and ``/readyz``: 200, or 503 with the reason."""

    def __init__(
        self,
        listen: str,
        security: Security | None,
        pages: Mapping[str, Page],
        healthy: Check = well,
        ready: Check = well,
        limits: FrontLimits | None = None,
    ) -> None:
        """Bind ``listen`` (host:port; port 0 takes a free one). Raises SetupError if the port is
        not available."""
        check_listen(listen, security)
        host = listen.rpartition(":")[0]
        self._security = security
        self._tls = None if security is None or is_loopback(host) else security.tls
        self._rules = BrowserRules(names_of(host) if self._tls is None else ())
        self._pages = dict(pages)
        self._checks = {HEALTHZ: healthy, READYZ: ready}
        self._context: RenewedContext | None = None
        self._limits = limits or front_limits.metrics()
        bound = listening(listen, "Metrics cannot be served at")
        self._front = Front(bound, self._limits, self._take_over, "metrics")
        self.address = f"{host}:{bound.getsockname()[1]}"

    def start(self) -> None:
        """Answer from now on, on threads of its own."""
        self._front.start()

    def close(self) -> None:
        """Answer no more."""
        self._front.close()

    def _take_over(self, connection: socket.socket, visitor: Visitor) -> None:
        threading.Thread(
            target=self._one, args=(connection, visitor), name="metrics", daemon=True
        ).start()

    def _one(self, connection: socket.socket, visitor: Visitor) -> None:
        try:
            connection.settimeout(self._limits.head_s)
            connection = self._secured(connection, visitor)
            head = read_head(connection, self._limits.head_bytes)
            self._handler(visitor, head)(connection, visitor.address, self)
        except OSError:
            pass  # the client went away, or took too long
        except Exception:
            _log.exception("a request for metrics failed")
        finally:
            connection.close()
            self._front.leave(visitor)

    def _secured(self, connection: socket.socket, visitor: Visitor) -> socket.socket:
        if self._tls is None:
            return connection
        from millwheel.adapters.grpc.certificates import server_context

        if self._context is None:
            self._context = RenewedContext(self._tls, server_context)
        return shaken(self._context.now(), connection, visitor)

    def _admits(self, path: str, credential: str) -> bool:
        if self._security is None or (path == METRICS and self._security.tls is None):
            return True
        return self._security.admits(credential.encode().removeprefix(b"Bearer "), self.address)

    def _handler(self, visitor: Visitor, head: bytes) -> Callable[..., BaseHTTPRequestHandler]:
        from http.server import BaseHTTPRequestHandler  # not before the first request

        pages, checks, rules, front = self._pages, self._checks, self._rules, self._front
        admits = self._admits

        class Handler(BaseHTTPRequestHandler):
            """Answers one request and hangs up."""

            def setup(self) -> None:
                super().setup()
                self.rfile = io.BytesIO(head)

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in checks and front.advance(visitor, VisitPhase.PROBE):
                    reason = checks[path]()
                    self._send(
                        HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK,
                        _TEXT,
                        reason or "ok",
                    )
                elif front.advance(visitor, VisitPhase.ANSWER):
                    self._page(path)
                else:
                    self.send_error(503, "too many requests at a time; ask again")

            def _page(self, path: str) -> None:
                credential = self.headers.get("Authorization", "")
                page = pages.get(path)
                if (foreign := rules.refused(self.headers)) is not None:
                    self.send_error(foreign.status, foreign.sentence)
                elif not admits(path, credential):
                    self.send_error(401, "this run requires its token: millwheel token ROOT")
                elif page is None:
                    self.send_error(404, f"the pages are {', '.join(sorted((*pages, *checks)))}")
                else:
                    self._send(HTTPStatus.OK, CONTENT_TYPE, page())

            def _send(self, status: HTTPStatus, kind: str, body: bytes | str) -> None:
                content = body.encode() + b"\n" if isinstance(body, str) else body
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are not logged."""

        return Handler


_READ_BYTES = 4096  # of one read: nearly every head comes in one piece
_ENDS = (b"\r\n\r\n", b"\n\n")


def read_head(connection: socket.socket, most_bytes: int) -> bytes:
    """Everything up to the empty line behind the head, and any bytes that came with it. Raises
    OSError if the client hangs up before, or sends more than ``most_bytes``."""
    head = b""
    while not any(end in head for end in _ENDS):
        more = connection.recv(_READ_BYTES)
        if not more:
            raise ConnectionError("it hung up within the head of its request")
        head += more
        if len(head) > most_bytes:
            raise ConnectionError(f"the head of its request has more than {most_bytes} bytes")
    return head
