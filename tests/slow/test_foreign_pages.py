"""A page of another site in a real browser: it can neither send records, nor ask, nor frame what we
serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from millwheel.adapters.front.browsers import names_of
from millwheel.adapters.front.http_server import FrontedServer
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import listening
from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.connect.connectors.http.endpoint import HttpEndpoint
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.engine.queries.peer_client import Workers
from millwheel.tools.gateway.app import Gateway, GatewaySettings
from millwheel.tools.gateway.owners import Owners
from millwheel.tools.ui.app import PageSettings, RunPage
from tests.servers.chromium import browser
from tests.unit.tools.gateway.test_app import CATALOG, Links
from tests.unit.tools.ui.test_app import Run, Told

pytestmark = pytest.mark.slow

NAMES = names_of("127.0.0.1")
ATTACKS = """
async (port) => {
  const here = `http://127.0.0.1:${port}`, body = '{"ad": 1}';
  const paths = ['/', '/v1/query?name=clicks:1:1h', '/api/live', '/api/letters/replay',
    '/metrics', '/openapi.json'];
  const tried = promise => promise.catch(() => null);
  const framed = document.body.appendChild(document.createElement('iframe'));
  framed.src = here + '/api/live';
  for (const path of paths) {
    document.body.appendChild(new Image()).src = here + path;
    const script = document.body.appendChild(document.createElement('script'));
    script.src = here + path;
    await tried(fetch(here + path, {mode: 'no-cors'}));
    await tried(fetch(here + path));
    await tried(fetch(here + path, {mode: 'no-cors', method: 'POST', body}));
    navigator.sendBeacon(here + path, body);
  }
  const form = document.body.appendChild(document.createElement('form'));
  form.method = 'POST'; form.enctype = 'text/plain'; form.action = here + '/'; form.target =
    'elsewhere';
  form.appendChild(Object.assign(document.createElement('input'), {name: body, value: ''}));
  form.submit();
  await new Promise(done => setTimeout(done, 300));
}
"""


class Seen:
    """An application that remembers what got through to it."""

    def __init__(self, app: Any) -> None:
        self.statuses: list[tuple[str, str, int]] = []
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append((scope["method"], scope["path"], message["status"]))
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)


class Foreign(BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self) -> None:
        page = b"<!doctype html><title>evil</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def tabs() -> Iterator[tuple[Any, str]]:
    """A tab that shows a page of another site, and the address of that."""
    site = ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    with browser() as chromium:
        # As sites of the world are: Chromium asks its user before they reach the loopback, and some
        # do not ask.
        tab = chromium.new_context(permissions=["local-network-access"]).new_page()
        yield tab, f"http://127.0.0.1:{site.server_port}/"
    site.shutdown()
    site.server_close()


def served(app: Starlette) -> tuple[Seen, FrontedServer, threading.Thread, int]:
    seen, bound = Seen(app), listening("127.0.0.1:0", "No application at")
    server = FrontedServer(seen, bound, FrontLimits(), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=server.serve_on_this_thread)
    thread.start()
    return seen, server, thread, bound.getsockname()[1]


class Applications:
    """The three applications, and what reached what they stand for."""

    def __init__(self, folder: Path) -> None:
        self.injected: list[bytes] = []
        self.told = Told()
        self._folder = folder

    def __getitem__(self, name: str) -> Starlette:
        if name == "http source":
            return HttpEndpoint(HttpOptions(8080), "", self._inject).app()
        if name == "gateway":
            run = SimpleNamespace(catalog=CATALOG, owners=Owners(frozenset({"clicks"})))
            return Gateway(run, lambda: Workers(Links()), GatewaySettings(hosts=NAMES)).app()  # type: ignore[arg-type]
        return RunPage(
            Run(self._folder), self.told, PageSettings(hosts=NAMES, write_token="t")
        ).app()  # type: ignore[arg-type]

    async def _inject(self, lines: Any, ids: Any, traces: Any) -> InjectionResult:
        self.injected += lines
        return InjectionResult(accepted=len(lines))


@pytest.mark.parametrize("name", ["http source", "gateway", "page"])
def test_a_page_of_another_site_gets_nothing_and_does_nothing(
    name: str, tabs: tuple[Any, str], tmp_path: Path
) -> None:
    tab, site = tabs
    applications = Applications(tmp_path)
    seen, server, thread, port = served(applications[name])
    try:
        # not the site of the address that it attacks
        tab.goto(site.replace("127.0.0.1", "localhost"))
        tab.evaluate(ATTACKS, port)
        asked = {(method, path) for method, path, _ in seen.statuses}
        assert len(asked) > 5, "the browser did send them"
        assert not [each for each in seen.statuses if each[2] < 400]
        assert not applications.injected
        assert not applications.told.asked
    finally:
        server.should_exit = True
        thread.join()


def test_the_pages_of_the_gateway_work_under_their_policy(
    tabs: tuple[Any, str], tmp_path: Path
) -> None:
    tab, _ = tabs
    problems: list[str] = []
    _, server, thread, port = served(Applications(tmp_path)["gateway"])
    try:
        tab.on("console", lambda said: said.type == "error" and problems.append(said.text))
        tab.goto(f"http://127.0.0.1:{port}/docs")
        tab.wait_for_selector("#paths .verb")
        assert tab.evaluate("getComputedStyle(document.querySelector('form')).display") == "flex"
        assert not [each for each in problems if "favicon" not in each and "404" not in each]
    finally:
        server.should_exit = True
        thread.join()


def test_metrics_are_not_read_by_a_page_of_another_site(tabs: tuple[Any, str]) -> None:
    tab, site = tabs
    asked: list[int] = []

    def page() -> bytes:
        asked.append(1)
        return b"up 1\n"

    endpoint = Endpoint("127.0.0.1:0", None, {"/metrics": page})
    endpoint.start()
    tab.goto(site.replace("127.0.0.1", "localhost"))
    tab.evaluate(ATTACKS, int(endpoint.address.rpartition(":")[2]))
    endpoint.close()
    assert not asked
