"""Requests to the page's server, with a run that a test has made up."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import msgspec
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.testclient import TestClient
from starlette.types import Message

from millwheel.control.roots.root import RunInfo
from millwheel.errors import SetupError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui import app as module
from millwheel.tools.ui import server
from millwheel.tools.ui.app import PageSettings, RunPage
from millwheel.tools.ui.documents import LiveRun
from millwheel.tools.ui.page_state import Shown
from millwheel.tools.ui.panels import ShownLetters
from millwheel.tools.ui.server import UiSettings, serve
from tests.unit.tools.ui.test_layout import TEXT, drawn

HOSTS = ("localhost", "127.0.0.1")
BODY = {"computation": "count", "kind": "late"}


class Run:
    def __init__(self, folder: Path) -> None:
        (folder / "p.yaml").write_text(dedent(TEXT))
        self.shown = Shown(load_pipeline(folder / "p.yaml"), LiveRun("drawn", "/r", "running", 1))
        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def live(self) -> LiveRun:
        return self.shown.live

    def rows(self) -> list[msgspec.Raw]:
        return [msgspec.Raw(b'{"stream":"words"}')]


class Told:
    """Panels that note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def letters(self, spec: Any) -> ShownLetters:
        return ShownLetters(problem="they go elsewhere")

    def savepoints(self) -> list[Any]:
        raise SetupError("the root is gone")

    def settings(self, spec: Any) -> list[Any]:
        return []

    def replay(self, spec: Any, *asked: str) -> str:
        self.asked.append(asked)
        return "3 dead letters are tried again, now."


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def client(run: Run, panels: Any = None, **settings: Any) -> TestClient:
    page = RunPage(run, panels or Told(), PageSettings(**{"hosts": HOSTS, **settings}))
    return TestClient(page.app(), base_url="http://localhost:8081")


def test_what_the_page_shows_is_json(run: Run, tmp_path: Path) -> None:
    http = client(run)
    graph = http.get("/api/graph").json()
    assert graph == {"drawing": json.loads(msgspec.json.encode(drawn(tmp_path))), "writable": False}
    assert http.get("/api/live").json()["pipeline"] == "drawn"
    assert http.get("/api/rows").json() == [{"stream": "words"}]
    assert http.get("/api/letters").json() == {"groups": [], "problem": "they go elsewhere"}
    assert http.get("/api/timeline").json() == http.get("/api/settings").json() == []
    assert run.looks == 6


def test_a_root_that_is_gone_is_a_sentence(run: Run) -> None:
    reply = client(run).get("/api/savepoints")
    assert (reply.status_code, reply.json()) == (503, {"error": "the root is gone"})


def test_the_page_and_its_parts_need_nothing_from_elsewhere(run: Run) -> None:
    http = client(run)
    page = http.get("/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    parts = [each.name for each in Path(module.STATIC).iterdir()]
    assert len(parts) >= 8
    for name in parts:
        reply = http.get(f"/{name}")
        assert reply.status_code == 200
        text = reply.text.replace("http://www.w3.org/2000/svg", "")
        for foreign in ("http://", "https://", "style=", "innerHTML", ' onclick="'):
            assert foreign not in text, name


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "localhost.evil.example", ""]
)
def test_a_name_that_is_not_ours_is_refused(run: Run, host: str) -> None:
    assert client(run).get("/api/live", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "LOCALHOST", "127.0.0.1:8081"])
def test_our_names_are_taken_with_any_port(run: Run, host: str) -> None:
    assert client(run).get("/api/live", headers={"host": host}).status_code == 200


def test_a_secured_run_is_shown_to_those_with_its_token(run: Run) -> None:
    http = client(run, admits=lambda shown: shown == b"t", hosts=())
    assert http.get("/api/live").status_code == http.get("/api/events").status_code == 401
    assert http.get("/api/live", headers={"authorization": "Bearer t"}).status_code == 200
    assert http.get("/").status_code == 200  # the page asks for the token


def test_replay_needs_a_page_that_may_write(run: Run) -> None:
    panels = Told()
    reply = client(run, panels).post("/api/letters/replay", json=BODY)
    assert reply.status_code == 403
    assert "--writable" in reply.json()["error"]
    http = client(run, panels, write_token="w")
    assert http.post("/api/letters/replay", json=BODY).status_code == 401
    assert (
        http.post(
            "/api/letters/replay", json=BODY, headers={"authorization": "Bearer x"}
        ).status_code
        == 401
    )
    assert panels.asked == []
    done = http.post("/api/letters/replay", json=BODY, headers={"authorization": "Bearer w"})
    assert (done.status_code, done.json()["words"]) == (200, "3 dead letters are tried again, now.")
    assert panels.asked == [("count", "late", "")]
    assert http.get("/api/graph").json()["writable"]


def test_a_page_of_another_site_cannot_replay(run: Run) -> None:
    panels = Told()
    http = client(run, panels, write_token="w")
    headers = {"authorization": "Bearer w", "origin": "http://evil.example"}
    assert http.post("/api/letters/replay", json=BODY, headers=headers).status_code == 403
    assert panels.asked == []
    headers["origin"] = "http://localhost:8081"
    assert http.post("/api/letters/replay", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 400), (b'{"kind": 1}', 400), (b" " * 70_000, 413)]
)
def test_a_body_that_is_no_request_is_refused(run: Run, body: bytes, status: int) -> None:
    http = client(run, write_token="w")
    assert (
        http.post(
            "/api/letters/replay", content=body, headers={"authorization": "Bearer w"}
        ).status_code
        == status
    )


def test_news_come_as_events_and_once(run: Run) -> None:
    asyncio.run(_news(run))


async def _news(run: Run) -> None:
    news = RunPage(run, Told())._news()  # type: ignore[arg-type]
    run.shown.timeline.add("run", "it began", 5)
    run.shown.notify()
    assert (await anext(news)).startswith(b'event: live\ndata: {"pipeline":"drawn"')
    assert b"it began" in await anext(news)
    run.shown.show(LiveRun("drawn", "/r", "stopped", 2))
    assert b'"stopped"' in await anext(news)
    run.shown.begin(run.shown.spec)
    run.shown.notify()
    assert (await anext(news)).startswith(b"event: graph\n")
    await news.aclose()


def test_too_many_pages_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 0)
    assert client(run).get("/api/events").status_code == 503


def test_pages_that_are_asked_for_at_the_same_moment_are_all_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 1)
    page = RunPage(run, PageSettings())
    request = Request(
        {"type": "http", "method": "GET", "path": "/api/events", "headers": [], "query_string": b""}
    )

    async def gone(_: Message) -> None:
        raise ClientDisconnect

    async def asked() -> tuple[int, int, int]:
        first, second = await page._events(request), await page._events(request)
        with suppress(Exception):  # alone or in a group, as the library likes
            await first(request.scope, None, gone)  # type: ignore[arg-type]
        third = await page._events(request)
        return first.status_code, second.status_code, third.status_code

    assert anyio.run(asked) == (200, 503, 200), (
        "one that has left makes room, also if it never began"
    )


# server.py


@pytest.mark.parametrize(
    ("known", "host", "said"),
    [(False, "127.0.0.1", "is not the root of a run"), (True, "0.0.0.0", "without authentication")],
)
def test_what_cannot_be_served_is_a_sentence(
    known: bool, host: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunInfo("drawn", "1", "local:x", 1) if known else None
    monkeypatch.setattr(server, "read_run", lambda root: run)
    orders: Any = None
    with pytest.raises(SetupError, match=said):
        serve(UiSettings(str(tmp_path), host), orders, lambda where: None)
