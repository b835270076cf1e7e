"""Injects the records of requests, and answers each request once its records are durable."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millwheel.adapters.front.browsers import BrowserRules, ForeignRequest, names_of
from millwheel.adapters.front.guard import Guarded
from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.adapters.grpc.security import is_loopback
from millwheel.connect.connectors.http.bodies import (
    ENCODINGS,
    BodyError,
    EncodingError,
    Posted,
    TooLargeError,
    read_body,
    trace_in,
    unpacked,
)
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.errors import SetupError, UnavailableError

Inject = Callable[[Sequence[bytes], Sequence[str], Sequence[str]], Awaitable[InjectionResult]]
"""(JSON texts, ids, trace contexts, with "" for none) -> how many were accepted, durably."""
HEALTH = "/health"
_LATER = {"Retry-After": "1"}
_GRACE_S = 0.25  # a body that is on its way gets this long before another request may have its room
_BUSY = "too many requests wait for the pipeline; try again"


class _DisplacedError(Exception):
    """A request that waits for its body makes room for another."""


class HttpEndpoint:
    """The endpoint of one stream. Requests must carry ``token`` unless it is ""."""

    def __init__(self, options: HttpOptions, token: str, inject: Inject) -> None:
        self._options = options
        self._expected = f"Bearer {token}".encode() if token else b""
        self._inject = inject
        self._injecting = 0
        self._reading: dict[asyncio.Task[bytes], float] = {}  # when each began to wait for a body
        near = is_loopback(options.host)
        names = names_of(options.host, options.allow_hosts) if near else ()
        self._rules = BrowserRules(
            names, options.allow_origins, "add NAME to its allow_hosts", programs_by_any_name=True
        )

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[Route("/", self.post, methods=["POST"]), Route(HEALTH, self.health)],
            middleware=[Middleware(Guarded, rules=self._rules, refuse=_foreign, probes=[HEALTH])],
        )

    async def health(self, request: Request) -> Response:
        """The health check: answers as long as the process lives."""
        return JSONResponse({"status": "ok"})

    async def post(self, request: Request) -> Response:
        """Accept all records of the request, or none."""
        credential = request.headers.get("authorization", "").encode()
        if self._expected and not hmac.compare_digest(credential, self._expected):
            return _refusal(401, "show the pipeline's token: Authorization: Bearer TOKEN")
        # Counted before the body is read: waiting requests take memory. One whose body does not
        # come makes room.
        if (
            self._injecting + len(self._reading) >= self._options.max_requests
            and not self._displaced()
        ):
            return _refusal(429, _BUSY, headers=_LATER)
        try:
            return await self._take(request)
        except (asyncio.TimeoutError, TimeoutError):  # two types in Python 3.10
            seconds = self._options.body_timeout_s
            text = (
                f"the body was not there within {seconds:g} s (body_timeout); send it again, in"
                " smaller requests"
            )
            return _refusal(408, text, headers={"Connection": "close"})
        except _DisplacedError:
            return _refusal(429, _BUSY, headers={**_LATER, "Connection": "close"})
        except ClientDisconnect:
            return _refusal(400, "the client hung up before the end of the body")
        except TooLargeError:
            return _refusal(
                413,
                f"a request has at most {self._options.max_bytes} bytes, unpacked; send several",
            )
        except EncodingError as error:
            return _refusal(415, str(error), headers={"Accept-Encoding": ENCODINGS})
        except BodyError as error:
            return _refusal(400, str(error), line=error.line)
        except SetupError as error:
            return _refusal(400, str(error))
        except UnavailableError as error:
            return _refusal(503, str(error), headers=_LATER)

    async def _take(self, request: Request) -> Response:
        packed = await self._read(request)
        self._injecting += 1
        try:
            body = unpacked(
                packed, request.headers.get("content-encoding", ""), self._options.max_bytes
            )
            posted = read_body(body, dict(request.headers))
            names = _named(posted, request.headers.get("idempotency-key", ""))
            # The trace of an event comes before that of the request, which may carry many events of
            # many.
            whole = trace_in(request.headers)
            result = await self._inject(
                posted.lines, names, [trace or whole for trace in posted.traces]
            )
        finally:
            self._injecting -= 1
        return JSONResponse(
            {
                "accepted": result.accepted,
                "duplicates": result.duplicates,
                "rejected": result.rejected,
            }
        )

    def _displaced(self) -> bool:
        """End the request that has waited for its body for the longest time; False if none waits
        for long."""
        oldest, since_s = next(iter(self._reading.items()), (None, 0.0))
        if oldest is None or monotonic() - since_s < _GRACE_S:
            return False
        del self._reading[oldest]
        return oldest.cancel()

    async def _read(self, request: Request) -> bytes:
        """The body. Raises TimeoutError if it is not there in time, and _DisplacedError if another
        request got its room."""
        task = asyncio.ensure_future(self._body(request))
        self._reading[task] = monotonic()
        try:
            done, _ = await asyncio.wait([task], timeout=self._options.body_timeout_s)
            if task.cancelled():
                raise _DisplacedError
            if not done:
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()
            self._reading.pop(task, None)

    async def _body(self, request: Request) -> bytes:
        most, body = self._options.max_bytes, bytearray()
        if int(request.headers.get("content-length") or 0) > most:
            raise TooLargeError
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise TooLargeError
        return bytes(body)


def _named(posted: Posted, key: str) -> list[str]:
    """The ids of the records: their own ids, or the number of the record and the key of the
    request. No id of an event begins like that."""
    return [
        name or (f"record {index} {key}" if key else "") for index, name in enumerate(posted.ids)
    ]


def _foreign(refused: ForeignRequest) -> Response:
    return _refusal(refused.status, refused.sentence)


def _refusal(
    code: int, text: str, headers: dict[str, str] | None = None, line: int = 0
) -> Response:
    return JSONResponse({"error": text, **({"line": line} if line else {})}, code, headers)


async def aside(work: Callable[[], InjectionResult]) -> InjectionResult:
    """Run blocking work on a thread."""
    return await asyncio.to_thread(work)
