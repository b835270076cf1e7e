"""The routes of the gateway. It has no state of its own: all gateways of a run are equivalent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from millwheel.adapters.front.browsers import BrowserRules, ForeignRequest
from millwheel.adapters.front.guard import Guarded
from millwheel.engine.queries.model import QueryError
from millwheel.engine.queries.peer_client import Asking, HealthWatch, Workers
from millwheel.tools.gateway.pages import DOCUMENT, PAGE, PAGE_POLICY
from millwheel.tools.gateway.questions import (
    MAX_BATCH,
    QueryBatch,
    RunView,
    asking_of,
    batch_of,
    deadline_s,
    decode_batch,
)

MAX_BODY_BYTES = 4 << 20
"""The largest request: 10,000 questions of 400 bytes."""
MAX_WAITING = 20_000
"""The most unanswered questions of one client address: further ones are refused with 429."""
# others: 400
_STATUS = {"unknown_indicator": 404, "too_much": 413, "unavailable": 503, "not_here": 503}
PROBES = ("/healthz", "/readyz")
"""Answered by every name, without a token, and however many other requests there are."""
_encode = msgspec.json.Encoder().encode
_Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """``admits``: whether a client has shown the token (``Authorization: Bearer``); None admits
    every client. ``origins``: other sites whose pages may ask (CORS). ``pages``: a folder of files
    that are served as well; "" for none. ``hosts``: the host names that clients may use for the
    gateway; () allows any."""

    admits: Callable[[bytes], bool] | None = None
    origins: Sequence[str] = ()
    pages: str = ""
    hosts: Sequence[str] = ()


@dataclass(slots=True)
class Gateway:
    """Answers requests. ``workers`` is made in the server's loop, and closed there."""

    run: RunView
    workers: Callable[[], Workers]
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    _waiting: Counter[str] = field(default_factory=Counter)
    _asks: Workers | None = None

    def app(self) -> Starlette:
        """The application, for any ASGI server."""
        cors = Middleware(
            CORSMiddleware, allow_origins=self.settings.origins, allow_headers=["authorization"]
        )
        routes: list[BaseRoute] = [
            Route("/v1/query", self._admitted(self._query), methods=["GET", "POST"]),
            Route("/v1/indicators", self._admitted(self._indicators)),
            Route("/healthz", _healthz),
            Route("/readyz", self._readyz),
            Route("/openapi.json", _document),
            Route("/docs", _page),
        ]
        routes.append(
            Mount("/", StaticFiles(directory=self.settings.pages, html=True))
            if self.settings.pages
            else Route("/", _page)
        )
        return Starlette(
            routes=routes,
            middleware=[
                Middleware(
                    Guarded,
                    rules=BrowserRules(
                        self.settings.hosts, self.settings.origins, "use --allow-host NAME"
                    ),
                    refuse=_foreign,
                    probes=PROBES,
                    linked=lambda path: not path.startswith("/v1/"),
                ),
                *([cors] if self.settings.origins else []),
            ],
            lifespan=lambda _: self._living(),
        )

    @asynccontextmanager
    async def _living(self) -> Any:
        self._asks = self.workers()
        watching = asyncio.ensure_future(
            HealthWatch(self._asks, lambda: self.run.owners.addresses).run()
        )
        try:
            yield
        finally:
            watching.cancel()
            self._asks.links.close()

    def _admitted(self, handler: _Handler) -> _Handler:
        admits = self.settings.admits

        async def checked(request: Request) -> Response:
            shown = request.headers.get("authorization", "").encode("latin-1", "replace")
            if admits is not None and not admits(shown.removeprefix(b"Bearer ")):
                sentence = (
                    "show the token of the run (`millwheel token ROOT`): Authorization: Bearer"
                    " TOKEN"
                )
                return refusal("unauthorized", sentence, 401)
            return await handler(request)

        return checked

    async def _query(self, request: Request) -> Response:
        try:
            single = request.method == "GET"
            batch = batch_of(dict(request.query_params)) if single else await _read(request)
            patience_s = deadline_s(batch)
        except QueryError as ex:
            return _refused(ex)
        client = request.client.host if request.client else ""
        count = len(batch.queries)
        if self._waiting[client] + count > MAX_WAITING:
            return refusal(
                "too_much", f"{MAX_WAITING} questions of this client wait for answers already", 429
            )
        self._waiting[client] += count
        try:
            replies = await self._answers(batch, patience_s)
        finally:
            self._waiting[client] -= count
            if not self._waiting[client]:
                del self._waiting[client]
        if not single:
            parts = b",".join(
                each if isinstance(each, bytes) else _encode(_error_body(each)) for each in replies
            )
            return _json(b'{"answers":[' + parts + b"]}")
        (reply,) = replies
        return _json(reply) if isinstance(reply, bytes) else _refused(reply)

    async def _answers(self, batch: QueryBatch, patience_s: float) -> list[bytes | QueryError]:
        asked: list[Asking | QueryError] = []
        for question in batch.queries:
            try:
                asked.append(asking_of(question, batch.stale, self.run))
            except QueryError as ex:
                asked.append(ex)
        assert self._asks is not None
        await self._asks.ask([each for each in asked if isinstance(each, Asking)], patience_s)
        replies = [each.reply if isinstance(each, Asking) else each for each in asked]
        return [each for each in replies if each is not None]

    async def _indicators(self, request: Request) -> Response:
        return _json(_encode(self.run.catalog.document()))

    async def _readyz(self, request: Request) -> Response:
        problem = self.run.owners.ready()
        return refusal("unavailable", problem, 503) if problem else JSONResponse({"ready": True})


def _foreign(refused: ForeignRequest) -> Response:
    code = "bad_host" if refused.status == 421 else "foreign_page"
    return refusal(code, refused.sentence, refused.status)


async def _read(request: Request) -> QueryBatch:
    """The body of a POST. Raises QueryError."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise QueryError("too_much", f"a request has {MAX_BODY_BYTES} bytes at most")
        batch = decode_batch(bytes(body))
    except ClientDisconnect:
        raise QueryError("unavailable", "the client has gone") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as ex:
        example = '{"queries": [{"indicator": "clicks", "key": 42, "window": "3h"}]}'
        raise QueryError(
            "bad_window", f"the body is not a request: {ex}; write for example {example}"
        ) from None
    if len(batch.queries) > MAX_BATCH:
        raise QueryError(
            "too_much",
            f"a request has {MAX_BATCH} questions at most, this one {len(batch.queries)}",
        )
    return batch


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def _error_body(ex: QueryError) -> Mapping[str, Any]:
    return {"error": {"code": ex.code, "sentence": ex.sentence}}


def _refused(ex: QueryError) -> Response:
    return refusal(ex.code, ex.sentence, _STATUS.get(ex.code, 400))


def refusal(code: str, sentence: str, status: int) -> Response:
    """An error as JSON. If a retry makes sense, ``retry-after`` gives the time."""
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": {"code": code, "sentence": sentence}}, status, headers)


async def _healthz(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _document(request: Request) -> Response:
    return JSONResponse(DOCUMENT)


async def _page(request: Request) -> Response:
    return HTMLResponse(PAGE, headers={"content-security-policy": PAGE_POLICY})
