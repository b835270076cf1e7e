"""A server that speaks what obstore asks of Google Cloud Storage: its XML API, with conditions on
generations.

It is a model after Google's description of that API, and no more. The emulators of the package
registries (gcp-storage-emulator, fake-gcs-server) refuse uploads by the XML API, so nothing could
be asked of them. Requests are served one at a time, so the conditions of two writers never
interleave.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.fakes.buckets import BUCKET, BucketServer, Fault

_PAGE = 3
"""Objects of one page, whatever is asked for: listings go over several."""
_META = "x-goog-meta-"


@dataclass(frozen=True, slots=True)
class Stored:
    """One generation of an object."""

    data: bytes
    generation: int
    meta: dict[str, str]

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


@dataclass(slots=True)
class Objects:
    """One bucket."""

    found: dict[str, Stored] = field(default_factory=dict)
    last: int = 1_700_000_000_000_000
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Uploads that have begun, by their id: the parts by their number."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(
        self, name: str, data: bytes, condition: str | None, meta: dict[str, str]
    ) -> Stored | None:
        """None when another generation stands there than the condition names; 0 is none."""
        now = self.found.get(name)
        if condition is not None and int(condition) != (now.generation if now is not None else 0):
            return None
        self.last += 1
        self.found[name] = Stored(data, self.last, meta)
        return self.found[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: Objects
    faults: list[Fault]

    def log_message(self, *_: Any) -> None:
        """Tests need no log."""

    def _split(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        found = parse_qs(parts.query, keep_blank_values=True)
        return bucket, name, {key: values[0] for key, values in found.items()}

    def _say(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        length: int = -1,
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._say(
            status,
            (
                f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
            ).encode(),
        )

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.objects.lock:
            path = unquote(self.path)
            fault = next(
                (f for f in self.faults if f.times and f.method == self.command and f.part in path),
                None,
            )
            if fault is None:
                self._answer(data)
            else:
                fault.times -= 1
                self._fail(fault.what, data)

    def _fail(self, what: str, data: bytes) -> None:
        if what in ("refuse", "deny"):
            self._refuse(*((403, "AccessDenied") if what == "deny" else (503, "SlowDown")))
            return
        if what.startswith("ignore"):
            if (self.headers["x-goog-if-generation-match"] == "0") == (
                what == "ignore_if_none_match"
            ):
                del self.headers["x-goog-if-generation-match"]
            self._answer(data)
            return
        if what == "lose_answer":
            wire, self.wfile = self.wfile, BytesIO()
            self._answer(data)
            self.wfile = wire
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, data: bytes) -> None:
        bucket, name, query = self._split()
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif not name:
            self._list(query)
        elif "uploads" in query or "uploadId" in query:
            self._put_part(name, query, data)
        elif self.command == "PUT":
            self._put(name, data)
        elif name not in self.objects.found:
            self._refuse(404, "NoSuchKey")
        elif self.command == "DELETE":
            del self.objects.found[name]
            self._say(204)
        else:
            self._get(self.objects.found[name])

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _serve

    def _put(self, name: str, data: bytes) -> None:
        meta = {
            key.lower(): value
            for key, value in self.headers.items()
            if key.lower().startswith(_META)
        }
        stored = self.objects.put(name, data, self.headers.get("x-goog-if-generation-match"), meta)
        if stored is None:
            self._refuse(412, "PreconditionFailed")
        else:
            self._say(200, b"", {"ETag": stored.tag, "x-goog-generation": str(stored.generation)})

    def _put_part(self, name: str, query: dict[str, str], data: bytes) -> None:
        """An upload in parts: it begins, a part comes, it ends."""
        if "uploads" in query:
            self.objects.last += 1
            self.objects.parts[str(self.objects.last)] = {}
            answer = f"<UploadId>{self.objects.last}</UploadId>"
            self._say(
                200,
                f"<InitiateMultipartUploadResult>{answer}</InitiateMultipartUploadResult>".encode(),
            )
        elif self.command == "PUT":
            self.objects.parts[query["uploadId"]][int(query["partNumber"])] = data
            self._say(200, b"", {"ETag": f'"{hashlib.md5(data).hexdigest()}"'})
        else:
            parts = self.objects.parts.pop(query["uploadId"])
            stored = self.objects.put(
                name, b"".join(data for _, data in sorted(parts.items())), None, {}
            )
            assert stored is not None
            answer = f"<ETag>{escape(stored.tag)}</ETag>"
            body = (
                f"<CompleteMultipartUploadResult>{answer}</CompleteMultipartUploadResult>".encode()
            )
            self._say(200, body, {"x-goog-generation": str(stored.generation)})

    def _get(self, stored: Stored) -> None:
        if self.headers.get("If-Match", stored.tag) != stored.tag:
            self._refuse(412, "PreconditionFailed")
            return
        headers = {"ETag": stored.tag, "x-goog-generation": str(stored.generation), **stored.meta}
        headers["Last-Modified"] = formatdate(stored.generation / 1e6, usegmt=True)
        if (span := self.headers.get("Range")) is None:
            self._say(200, stored.data, headers, len(stored.data))
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1 if last else len(stored.data), len(stored.data))
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(stored.data)}"
        self._say(206, stored.data[int(first) : end], headers)

    def _list(self, query: dict[str, str]) -> None:
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = sorted(
            {
                _grouped(name, prefix, delimiter)
                for name in self.objects.found
                if name.startswith(prefix)
            }
        )
        names = [name for name in names if name > after]
        page = names[:_PAGE]
        more = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            if len(names) > len(page)
            else ""
        )
        found = self.objects.found
        contents = "".join(
            _listed(name, found[name]) if name in found else _folder(name) for name in page
        )
        self._say(200, f"<ListBucketResult>{more}{contents}</ListBucketResult>".encode())


def _grouped(name: str, prefix: str, delimiter: str) -> str:
    """The name, or the folder that stands for it in a listing."""
    rest, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
    return f"{prefix}{rest}{delimiter}" if found else name


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"


def _listed(name: str, stored: Stored) -> str:
    return (
        f"<Contents><Key>{escape(name)}</Key><Generation>{stored.generation}</Generation><Size>{len(stored.data)}</Size>"
        f"<LastModified>2026-01-31T00:00:00.000Z</LastModified><ETag>{escape(stored.tag)}</ETag></Contents>"
    )


class GcsServer(BucketServer):
    """The server, from the caller's side. Other processes reach it, too."""

    scheme = "gs"

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        parts = {"objects": Objects(), "faults": self._faults}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), parts))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def config(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        # Never without a key: the client would ask the metadata service of the machine for a token.
        key = {
            "gcs_base_url": url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"base_url": url, "service_account_key": json.dumps(key)}

    @property
    def environment(self) -> dict[str, str]:
        return {f"GOOGLE_{name.upper()}": value for name, value in self.config.items()}

    def fail(self, *faults: Fault) -> None:
        self._faults[:] = faults

    def close(self) -> None:
        """End the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """A server with one empty bucket, and the environment that leads there."""
    server = GcsServer()
    try:
        with server.reachable():
            yield server
    finally:
        server.close()
