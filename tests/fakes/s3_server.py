"""A server process that speaks S3 (moto's), and loses answers, fails or ignores conditions when it
is told to.

Requests are served one at a time, so the conditions of two writers never interleave. What is to go
wrong is said by ``POST /-faults`` with a list of :class:`Fault`; ``GET /-requests`` tells how many
requests there were by method.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millwheel.launch.launchers.warm_messages import ready
from tests.fakes.buckets import BUCKET, BucketServer, Fault

_START_S = 60.0
_ACCOUNT = "123456789012"


class FaultyApp:
    """Moto's application, one request at a time, with faults."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._requests: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            return self._answer(environ, start)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/-faults":
            self._faults = [Fault(**fault) for fault in json.loads(_body(environ))]
            return _say(start, "200 OK", b"")
        if path == "/-requests":
            return _say(start, "200 OK", json.dumps(self._requests).encode())
        self._requests[method] += 1
        fault = next(
            (f for f in self._faults if f.times and f.method == method and f.part in path), None
        )
        if fault is None:
            return list(self._inner(environ, start))
        fault.times -= 1
        return self._faulty(fault.what, environ, start)

    def _faulty(
        self, what: str, environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        if what in ("refuse", "deny"):
            _body(environ)
            code = "AccessDenied" if what == "deny" else "SlowDown"
            body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
            return _say(start, "403 Forbidden" if what == "deny" else "503 Slow Down", body)
        if what in ("ignore_if_none_match", "ignore_if_match"):
            environ.pop(f"HTTP_{what.removeprefix('ignore_').upper()}", None)
            return list(self._inner(environ, start))
        if what == "lose_answer":
            list(self._inner(environ, lambda *_: None))
        with suppress(OSError):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return _say(start, "500 Lost", b"")


def _body(environ: dict[str, Any]) -> bytes:
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def _say(start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


class S3Server(BucketServer):
    """The process, from the caller's side. ``url`` is its endpoint."""

    scheme = "s3"

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fakes.s3_server"]
        house = str(Path(__file__).resolve().parents[2])
        environment = {**os.environ, "PYTHONPATH": house}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=house
        )
        assert self._process.stdout is not None
        assert ready([self._process.stdout.fileno()], _START_S), "the S3 server did not start"
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    @property
    def environment(self) -> dict[str, str]:
        keys = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        return {**keys, "AWS_ENDPOINT_URL": self.url}

    @property
    def config(self) -> dict[str, str]:
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
        return {**keys, "endpoint": self.url}

    def fail(self, *faults: Fault) -> None:
        self._ask("/-faults", json.dumps([asdict(fault) for fault in faults]).encode())

    def requests(self) -> Counter[str]:
        """How many requests there were, by method."""
        return Counter(json.loads(self._ask("/-requests", None)))

    def _ask(self, path: str, body: bytes | None) -> bytes:
        with urllib.request.urlopen(self.url + path, body, timeout=30) as answer:
            return bytes(answer.read())

    def close(self) -> None:
        """End the process; it also ends when ours does."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty bucket, and the environment that leads there."""
    server = S3Server()
    try:
        with server.reachable():
            yield server
    finally:
        server.close()


def main() -> None:
    """Serve on a free port, which is printed, until standard input ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    s3_backends[_ACCOUNT]["aws"].create_bucket(BUCKET, "us-east-1")
    app = FaultyApp(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
