from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from millwheel.adapters.front.browsers import PAGE_HEADERS, BrowserRules, ForeignRequest, names_of
from millwheel.adapters.front.guard import Guarded

FOREIGN = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


async def _shown(request: Request) -> Response:
    return PlainTextResponse("shown", headers={"x-frame-options": "ALLOWALL", "x-own": "kept"})


async def _own_policy(request: Request) -> Response:
    return PlainTextResponse("shown", headers={"content-security-policy": "default-src 'self'"})


def _refuse(foreign: ForeignRequest) -> Response:
    return PlainTextResponse(foreign.sentence, foreign.status)


def client() -> TestClient:
    guarded = Middleware(
        Guarded,
        rules=BrowserRules(names_of("127.0.0.1")),
        refuse=_refuse,
        probes=["/healthz"],
        linked=lambda path: path == "/page",
    )
    methods = ["GET", "POST"]
    routes = [Route(path, _shown, methods=methods) for path in ("/page", "/api", "/healthz")]
    app = Starlette(routes=[*routes, Route("/own", _own_policy)], middleware=[guarded])
    return TestClient(app, base_url="http://127.0.0.1:8080")


def test_every_response_has_the_headers_of_pages_whatever_the_application_says() -> None:
    for path in ("/page", "/nowhere"):
        found = client().get(path).headers
        assert {name: found[name] for name in PAGE_HEADERS} == PAGE_HEADERS
    assert client().get("/page").headers["x-own"] == "kept"
    assert client().get("/api", headers=FOREIGN).headers["x-frame-options"] == "DENY"


def test_a_page_keeps_a_policy_of_its_own() -> None:
    assert client().get("/own").headers["content-security-policy"] == "default-src 'self'"


def test_links_lead_to_pages_only() -> None:
    assert client().get("/page", headers=FOREIGN).status_code == 200
    assert client().get("/api", headers=FOREIGN).status_code == 403


def test_probes_may_use_any_name_but_nobody_posts_to_them() -> None:
    assert client().get("/healthz", headers={"host": "10.0.0.1"}).status_code == 200
    assert client().get("/api", headers={"host": "10.0.0.1"}).status_code == 421
    assert client().post("/healthz", headers={"origin": "http://evil.example"}).status_code == 403
