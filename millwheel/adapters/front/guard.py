"""The rules for browsers and the headers of pages, around the application of any HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millwheel.adapters.front.browsers import PAGE_HEADERS, BrowserRules, ForeignRequest

_CSP = b"content-security-policy"
_HEADERS = [(name.encode(), value.encode()) for name, value in PAGE_HEADERS.items()]


class Guarded:
    """Refuses requests of foreign pages and for foreign names, and sets the headers of every
    response; a response that has a content security policy keeps it. ``refuse`` makes the answer.
    ``probes`` are paths that anybody may request by any name. ``linked``: whether a path is a page,
    to which other sites may have links."""

    def __init__(
        self,
        app: ASGIApp,
        rules: BrowserRules,
        refuse: Callable[[ForeignRequest], ASGIApp],
        probes: Collection[str] = (),
        linked: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._app = app
        self._rules = rules
        self._refuse = refuse
        self._probes = frozenset(probes)
        self._linked = linked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _completed(message["headers"])
            await send(message)

        foreign = self._foreign(scope)
        await (self._app if foreign is None else self._refuse(foreign))(scope, receive, sent)

    def _foreign(self, scope: Scope) -> ForeignRequest | None:
        path = scope["path"]
        if path in self._probes and scope["method"] in ("GET", "HEAD"):
            return None
        return self._rules.refused(Headers(scope=scope), self._linked(path))


def _completed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    names = {name.lower() for name, _ in headers}
    ours = [(name, value) for name, value in _HEADERS if name != _CSP or _CSP not in names]
    replaced = {name for name, _ in ours}
    return [*((name, value) for name, value in headers if name.lower() not in replaced), *ours]
