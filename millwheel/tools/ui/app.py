"""The routes of the page. GET requests read; requests that change a run are POSTs with a token."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Protocol

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from millwheel.adapters.front.browsers import BrowserRules, ForeignRequest
from millwheel.adapters.front.guard import Guarded
from millwheel.errors import MillwheelError
from millwheel.tools.ui.documents import LiveRun
from millwheel.tools.ui.page_state import Shown
from millwheel.tools.ui.panels import Panels
from millwheel.tools.ui.timeline import Happening

MAX_STREAMS = 50
"""Pages that are kept up to date at the same time; further ones are refused with 503."""
_PING_S = 10.0  # without news, so that a page notices a server that is gone
_MAX_BODY_BYTES = 64 << 10  # a request names one group of letters
PROBES = ("/healthz",)
"""Answered by every name, and however many other requests there are."""
STATIC = str(files("millwheel.tools.ui") / "static")
_encode = msgspec.json.Encoder().encode


class ShownRun(Protocol):
    """A run that is being followed; see :class:`.FollowedPage`."""

    shown: Shown

    def look(self) -> None: ...

    def live(self) -> LiveRun: ...

    def rows(self) -> list[msgspec.Raw]: ...


@dataclass(frozen=True, slots=True)
class PageSettings:
    """``admits``: whether a reader has shown the token (None: none is needed). Changes require
    ``write_token`` ("": changes are off), which is also enough to read. ``hosts`` are the host
    names that browsers may use for the server (empty: any)."""

    admits: Callable[[bytes], bool] | None = None
    write_token: str = ""
    hosts: Sequence[str] = ()


class Replay(msgspec.Struct, frozen=True):
    """A request to replay dead letters of a group: all, or the one with the id ``letter``."""

    computation: str
    kind: str
    letter: str = ""


@dataclass(slots=True)
class RunPage:
    """Answers requests."""

    run: ShownRun
    panels: Panels
    settings: PageSettings = field(default_factory=PageSettings)
    _streams: int = 0
    _waits: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(MAX_STREAMS))

    def app(self) -> Starlette:
        """The application, for any ASGI server."""
        gets: list[tuple[str, Callable[[Request], Any]]] = [
            ("/api/graph", self._graph),
            ("/api/live", self._live),
            ("/api/timeline", self._timeline),
            ("/api/letters", self._letters),
            ("/api/rows", self._rows),
            ("/api/savepoints", self._savepoints),
            ("/api/settings", self._settings),
        ]
        routes = [Route(path, self._shown(document_of)) for path, document_of in gets]
        return Starlette(
            routes=[
                *routes,
                Route(PROBES[0], _healthz),
                Route("/api/events", self._events),
                Route("/api/letters/replay", self._replay, methods=["POST"]),
                # Some installers link to a cache of theirs instead of copying.
                Mount("/", StaticFiles(directory=STATIC, html=True, follow_symlink=True)),
            ],
            middleware=[
                Middleware(
                    Guarded,
                    rules=BrowserRules(self.settings.hosts, remedy="use --allow-host NAME"),
                    refuse=_foreign,
                    probes=PROBES,
                    linked=lambda path: not path.startswith("/api/"),
                )
            ],
        )

    # --- looking ----------------------------------------------------------------------------------

    def _shown(self, document_of: Callable[[Request], Any]) -> Callable[[Request], Response]:
        # on a thread: the contents may be read from files
        def answer(request: Request) -> Response:
            if (refused := self._may_not_look(request)) is not None:
                return refused
            self.run.look()
            try:
                return Response(_encode(document_of(request)), media_type="application/json")
            except (MillwheelError, OSError) as ex:
                return refusal(str(ex), 503)

        return answer

    def _may_not_look(self, request: Request) -> Response | None:
        admits, token = self.settings.admits, self.settings.write_token
        if admits is None or admits(_shown_by(request)) or (token and _shows(request, token)):
            return None
        return refusal(
            "show the token of this run: `millwheel ui` prints its address with one", 401
        )

    def _graph(self, request: Request) -> Any:
        return {"drawing": self.run.shown.drawing, "writable": bool(self.settings.write_token)}

    def _live(self, request: Request) -> Any:
        return self.run.live()

    def _timeline(self, request: Request) -> Any:
        return self.run.shown.timeline.events

    def _letters(self, request: Request) -> Any:
        return self.panels.letters(self.run.shown.spec)

    def _rows(self, request: Request) -> Any:
        return self.run.rows()

    def _savepoints(self, request: Request) -> Any:
        return self.panels.savepoints()

    def _settings(self, request: Request) -> Any:
        return self.panels.settings(self.run.shown.spec)

    async def _events(self, request: Request) -> Response:
        """Server-sent events: ``graph`` when the pipeline has changed, ``live`` and ``timeline``
        with each new state."""
        if (refused := self._may_not_look(request)) is not None:
            return refused
        if self._streams >= MAX_STREAMS:
            return refusal(f"{MAX_STREAMS} pages are open already: close one", 503)
        # here, before anything is awaited: others that come meanwhile must see it
        self._streams += 1
        return _Counted(self._news(), self._left)

    def _left(self) -> None:
        self._streams -= 1

    async def _news(self) -> AsyncIterator[bytes]:
        version, drawing = -1, self.run.shown.drawing
        events: list[Happening] = []
        while True:
            self.run.look()
            # Not on the threads on which other requests read files: fifty pages that wait would
            # take all of them.
            now = await anyio.to_thread.run_sync(
                self.run.shown.after, version, _PING_S, abandon_on_cancel=True, limiter=self._waits
            )
            if now == version:
                yield b": nothing new\n\n"
                continue
            version = now
            if self.run.shown.drawing is not drawing:
                drawing = self.run.shown.drawing
                yield _event("graph", drawing)
            yield _event("live", self.run.shown.live)
            if self.run.shown.timeline.events is not events:  # replaced, never changed
                events = self.run.shown.timeline.events
                yield _event("timeline", events)

    # --- changing ---------------------------------------------------------------------------------

    async def _replay(self, request: Request) -> Response:
        token = self.settings.write_token
        if not token:
            return refusal("this page is read-only: start `millwheel ui` with --writable", 403)
        if not _shows(request, token):
            return refusal("show the token that `millwheel ui` printed", 401)
        try:
            body = bytearray()
            async for piece in request.stream():
                body += piece
                if len(body) > _MAX_BODY_BYTES:
                    return refusal(f"a request has {_MAX_BODY_BYTES} bytes at most", 413)
            replay_request = msgspec.json.decode(body, type=Replay)
        except msgspec.MsgspecError as ex:
            return refusal(f"the body is not a request: {ex}", 400)
        except ClientDisconnect:
            return refusal("the client hung up before the end of the body", 400)
        try:
            words = await anyio.to_thread.run_sync(
                self.panels.replay,
                self.run.shown.spec,
                replay_request.computation,
                replay_request.kind,
                replay_request.letter,
            )
        except (MillwheelError, OSError) as ex:
            return refusal(str(ex), 409)
        return Response(_encode({"words": words}), media_type="application/json")


def _foreign(refused: ForeignRequest) -> Response:
    return PlainTextResponse(f"{refused.sentence}\n", refused.status)


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _shown_by(request: Request) -> bytes:
    return (
        request.headers.get("authorization", "")
        .encode("latin-1", "replace")
        .removeprefix(b"Bearer ")
    )


def _shows(request: Request, token: str) -> bool:
    return hmac.compare_digest(_shown_by(request), token.encode())


def refusal(sentence: str, status: int) -> Response:
    """An error as JSON."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return Response(_encode({"error": sentence}), status, headers, "application/json")


class _Counted(StreamingResponse):
    """Server-sent events that report their end, also if they never began."""

    def __init__(self, content: AsyncIterator[bytes], over: Callable[[], None]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


def _event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode(value) + b"\n\n"
