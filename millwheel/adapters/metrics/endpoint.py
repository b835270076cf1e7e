"""The HTTP server of one process for ``/metrics``: a socket, and a thread that sleeps until a request comes.

Each request has a thread of its own, for as long as it takes. On the loopback the server is open, like the rest of a
run there; elsewhere it uses TLS and requires the pipeline's token (``Authorization: Bearer``), as gRPC does.
``/healthz`` and ``/readyz`` need no token: a kubelet has none, and they name processes and nodes only.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from millwheel.adapters.grpc.security import Security, check_listen, is_loopback
from millwheel.adapters.hosts import LOOPBACK_NAMES, is_called
from millwheel.adapters.metrics.text import CONTENT_TYPE
from millwheel.errors import SetupError

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

_TIMEOUT_S = 5.0  # for a client to send its request and to take the answer
_AT_ONCE = 16  # requests: clients that say nothing must not keep a probe from its answer
_BACKLOG = 16  # connections that wait
_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger("millwheel.metrics")

Page = Callable[[], bytes]
Check = Callable[[], str]
"""Why a process is not well, or ""."""
HEALTHZ, READYZ = "/healthz", "/readyz"


def well() -> str:
    """The check of a process that is well whenever it answers."""
    return ""


class Endpoint:
    """Serves ``pages`` by their paths, from :meth:`start` on until the process ends. ``healthy`` and ``ready`` are the
    answers of ``/healthz`` and ``/readyz``: 200, or 503 with the reason."""

    def __init__(
        self,
        listen: str,
        security: Security | None,
        pages: Mapping[str, Page],
        healthy: Check = well,
        ready: Check = well,
    ) -> None:
        """Bind ``listen`` (host:port; port 0 takes a free one). Raises SetupError if the port is not available."""
        check_listen(listen, security)
        host, _, port = listen.rpartition(":")
        self._security = None if is_loopback(host) else security
        self._pages = dict(pages)
        self._checks = {HEALTHZ: healthy, READYZ: ready}
        self._context: Any = None
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host.strip("[]"), int(port)))
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise SetupError(f"Metrics cannot be served at {listen}: {error.strerror or error}") from error
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        """Answer from now on, on a thread of its own."""
        threading.Thread(target=self._serve, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return  # closed
            self._free.acquire()
            threading.Thread(target=self._one, args=(connection, peer), name="metrics", daemon=True).start()

    def _one(self, connection: socket.socket, peer: Any) -> None:
        try:
            self._answer(connection, peer)
        except OSError:
            pass  # the client went away
        except Exception:
            _log.exception("a question for metrics failed")
        finally:
            connection.close()
            self._free.release()

    def _answer(self, connection: socket.socket, peer: Any) -> None:
        connection.settimeout(_TIMEOUT_S)
        if self._security is None:
            _handler(self._pages, self._checks, "", LOOPBACK_NAMES)(connection, peer, self)
            return
        with self._secured(connection, self._security) as secured:
            _handler(self._pages, self._checks, self._security.token, ())(secured, peer, self)

    def _secured(self, connection: socket.socket, security: Security) -> socket.socket:
        from millwheel.adapters.metrics.tls import server_context

        if self._context is None:
            self._context = server_context(security)
        wrapped: socket.socket = self._context.wrap_socket(connection, server_side=True)
        return wrapped


def _handler(
    pages: Mapping[str, Page], checks: Mapping[str, Check], token: str, hosts: Collection[str]
) -> Callable[..., BaseHTTPRequestHandler]:
    from http.server import BaseHTTPRequestHandler  # not before the first request

    class Handler(BaseHTTPRequestHandler):
        """Answers one question and hangs up."""

        def do_GET(self) -> None:
            shown = self.headers.get("Authorization", "")
            path = self.path.partition("?")[0]
            page = pages.get(path)
            if path in checks:
                reason = checks[path]()
                self._send(HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, _TEXT, reason or "ok")
            elif not is_called(self.headers.get("Host", ""), hosts):
                self.send_error(421, "this server has other names: use localhost")
            elif token and not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
                self.send_error(401, "this pipeline wants the token of its --security folder")
            elif page is None:
                self.send_error(404, f"there are {', '.join(sorted((*pages, *checks)))}")
            else:
                self._send(HTTPStatus.OK, CONTENT_TYPE, page())

        def _send(self, status: HTTPStatus, kind: str, body: bytes | str) -> None:
            content = body.encode() + b"\n" if isinstance(body, str) else body
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    return Handler
