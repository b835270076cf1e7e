"""Requests by HTTP, with workers that say what a test wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from millwheel.control.roots.root import RunInfo
from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.queries.peer_client import Workers
from millwheel.errors import SetupError
from millwheel.tools.gateway import app as module
from millwheel.tools.gateway import server
from millwheel.tools.gateway.app import MAX_BODY_BYTES, Gateway, GatewaySettings
from millwheel.tools.gateway.owners import Owners
from millwheel.tools.gateway.questions import MAX_BATCH
from millwheel.tools.gateway.server import ServeSettings, serve
from tests.unit.engine.queries.test_named_queries import Changes
from tests.unit.engine.queries.test_peer_client import FakeLinks, Refusal
from tests.unit.tools.gateway.test_questions import CATALOG

ANSWER = b'{"values":{"n":3}}'
TOKEN = "token-of-the-pipeline"


def admits(shown: bytes) -> bool:
    return shown == TOKEN.encode()


class Links(FakeLinks):
    def close(self) -> None: ...


def said(command: bytes) -> Any:
    return Refusal("ERR beyond_keep: too far back") if b"999us" in command else ANSWER


def client(ready: bool = True, links: Links | None = None, **settings: Any) -> TestClient:
    owners = Owners(frozenset({"clicks"}))
    if ready:
        owners.workers({"w0": json.dumps({"queries": "h:1"}).encode()})
        entries = [
            ShardEntry(f"clicks-{n}", piece, WorkerName("w0"), 1) for n, piece in enumerate(tile(2))
        ]
        owners.table(RangeTable("clicks", tuple(entries), 1))
    run = SimpleNamespace(catalog=CATALOG, owners=owners)
    there = links or Links(**{"h:1": said})
    gateway = Gateway(run, lambda: Workers(there), GatewaySettings(**settings))  # type: ignore[arg-type]
    return TestClient(gateway.app())


@pytest.fixture(scope="module")
def http() -> Any:
    with client() as found:
        yield found


def test_a_question_is_answered_with_what_the_worker_says(http: TestClient) -> None:
    reply = http.get("/v1/query", params={"indicator": "clicks", "key": "42", "window": "3h"})
    assert (reply.status_code, reply.content) == (200, ANSWER)
    assert reply.headers["content-type"] == "application/json"
    assert http.get("/v1/query?name=cpc:42").content == ANSWER
    assert http.get("/v1/query", params={"formula": "clicks.n * 2", "key": 1}).content == ANSWER


def test_many_questions_are_answered_in_order_and_each_may_be_an_error(http: TestClient) -> None:
    questions: Sequence[dict[str, Any]] = [
        {"indicator": "clicks", "key": 42, "window": "3h"},
        {"indicator": "other", "key": 42},
        {"indicator": "clicks", "key": 42, "window": 999},
        {"name": "clicks:42:3h"},
    ]
    reply = http.post("/v1/query", json={"queries": questions})
    assert reply.status_code == 200
    answers = reply.json()["answers"]
    assert [each.get("values") for each in answers] == [{"n": 3}, None, None, {"n": 3}]
    assert [each["error"]["code"] for each in answers[1:3]] == ["unknown_indicator", "beyond_keep"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("indicator=other&key=1", 404, "unknown_indicator"),
        ("indicator=clicks&key=x", 400, "wrong_key"),
        ("indicator=clicks&key=1&window=-3h", 400, "bad_window"),
        ("indicator=clicks&key=1&window=999us", 400, "beyond_keep"),
        ("indicator=clicks&key=1&deadline_ms=0", 413, "too_much"),
    ],
)
def test_errors_are_sentences_with_a_status(
    http: TestClient, query: str, status: int, code: str
) -> None:
    reply = http.get(f"/v1/query?{query}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert len(reply.json()["error"]["sentence"]) > 10


def test_requests_over_the_limits_are_refused(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"indicator": "clicks", "key": 42, "window": "3h"}
    assert http.post("/v1/query", json={"queries": [one] * (MAX_BATCH + 1)}).status_code == 413
    assert http.post("/v1/query", content=b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    assert "write for example" in http.post("/v1/query", content=b"{]").json()["error"]["sentence"]
    assert http.post("/v1/query", content=b"\xff\xfe").status_code == 400
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    busy = http.post("/v1/query", json={"queries": [one] * 2})
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
    assert http.post("/v1/query", json={"queries": [one]}).status_code == 200


def test_nobody_answers_within_the_deadline() -> None:
    with client(links=Links()) as http:
        reply = http.get("/v1/query?name=clicks:42:3h&deadline_ms=30")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")


def test_who_shows_no_token_is_not_answered_but_may_look_whether_it_lives() -> None:
    with client(admits=admits) as http:
        assert http.get("/v1/query?name=clicks:42:3h").status_code == 401
        assert (
            http.get(
                "/v1/indicators", headers={"authorization": "Bearer nö".encode("latin-1")}
            ).status_code
            == 401
        )
        assert (
            http.get("/v1/indicators", headers={"authorization": f"Bearer {TOKEN}"}).status_code
            == 200
        )
        assert http.get("/healthz").status_code == 200


def test_it_is_ready_once_it_knows_the_run(http: TestClient) -> None:
    assert http.get("/readyz").status_code == 200
    with client(ready=False) as other:
        assert "--query-port" in other.get("/readyz").json()["error"]["sentence"]


def test_pages_of_other_sites_may_ask_only_if_they_are_named(http: TestClient) -> None:
    origin = {"origin": "https://a.example"}
    assert "access-control-allow-origin" not in http.get("/healthz", headers=origin).headers
    with client(origins=("https://a.example",)) as named:
        assert (
            named.get("/healthz", headers=origin).headers["access-control-allow-origin"]
            == "https://a.example"
        )
        other = named.get("/healthz", headers={"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_it_shows_what_can_be_asked_and_serves_a_folder_of_pages(
    http: TestClient, tmp_path: Path
) -> None:
    assert http.get("/openapi.json").json()["openapi"] == "3.1.0"
    assert "<title>MillWheel queries</title>" in http.get("/").text
    assert http.get("/v1/indicators").json()["queries"]["cpc"]["window"] == "1h"
    (tmp_path / "index.html").write_text("my dashboard")
    with client(pages=str(tmp_path)) as own:
        assert own.get("/").text == "my dashboard"
        assert "MillWheel" in own.get("/docs").text
        assert own.get("/../app.py").status_code == 404


def test_other_names_than_ours_are_refused_but_for_probes() -> None:
    with client(hosts=("localhost",)) as named:
        assert named.get("/v1/indicators", headers={"host": "evil.example"}).status_code == 421
        assert named.get("/v1/indicators", headers={"host": "localhost:8080"}).status_code == 200
        assert named.get("/healthz", headers={"host": "10.1.2.3"}).status_code == 200


# server.py: Where the gateway refuses to serve.


@pytest.mark.parametrize(
    ("known", "settings", "said"),
    [
        (False, {}, "is not the root of a run"),
        (True, {"pages": "/nowhere"}, "is not a folder"),
        (True, {"host": "0.0.0.0"}, "without authentication"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(
    known: bool,
    settings: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunInfo("asked", "1", "local:x", 1) if known else None
    monkeypatch.setattr(server, "read_run", lambda root: run)
    given = ServeSettings(tmp_path, **{"host": "127.0.0.1", **settings}, port=0)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=said):
        serve(given, Changes(), lambda url: None)
