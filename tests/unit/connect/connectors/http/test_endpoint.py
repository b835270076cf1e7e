"""The answers of the endpoint, without a network."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.connect.connectors.http.endpoint import HttpEndpoint
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.errors import UnavailableError


class Pipeline:
    """Takes what it is given; ``open`` lets it answer."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, str]] = []
        self.traces: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.away = False

    async def inject(
        self, lines: Sequence[bytes], ids: Sequence[str], traces: Sequence[str]
    ) -> InjectionResult:
        await self.open.wait()
        if self.away:
            raise UnavailableError("no worker took them")
        self.taken += zip(lines, ids, strict=True)
        self.traces += traces
        return InjectionResult(accepted=len(lines))


async def ask(
    endpoint: HttpEndpoint, body: bytes = b"{}", path: str = "/", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, body and headers of the answer."""
    sent: list[Any] = []
    headers.setdefault("host", "127.0.0.1:8080")
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "POST" if path == "/" else "GET",
        "path": path,
        "headers": raw,
        "query_string": b"",
    }
    pieces = [
        {"type": "http.request", "body": body[:3], "more_body": True},
        {"type": "http.request", "body": body[3:]},
    ]

    async def receive() -> Any:
        if body == b"stalled":
            await asyncio.Event().wait()
        return pieces.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await endpoint.app()(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return (
        sent[0]["status"],
        json.loads(b"".join(part.get("body", b"") for part in sent[1:])),
        answered,
    )


def test_a_request_is_answered_with_what_became_of_its_records() -> None:
    async def story() -> None:
        pipeline = Pipeline()
        endpoint = HttpEndpoint(HttpOptions(8080), "", pipeline.inject)
        assert (await ask(endpoint, b'{"n":1}\n{"n":2}'))[:2] == (
            200,
            {"accepted": 2, "duplicates": 0, "rejected": 0},
        )
        await ask(endpoint, b'{"n":3}\n{"n":4}', idempotency_key="k")
        assert [name for _, name in pipeline.taken] == ["", "", "record 0 k", "record 1 k"]
        assert (await ask(endpoint, path="/health"))[:2] == (200, {"status": "ok"})

    asyncio.run(story())


def test_of_a_request_with_a_wrong_line_nothing_is_taken() -> None:
    async def story() -> None:
        pipeline = Pipeline()
        status, answer, _ = await ask(
            HttpEndpoint(HttpOptions(8080), "", pipeline.inject), b'{"n":1}\nno'
        )
        assert (status, answer["line"]) == (400, 2)
        assert answer["error"].startswith("line 2: no valid JSON")
        assert pipeline.taken == []

    asyncio.run(story())


@pytest.mark.parametrize("told", [True, False])
def test_a_body_is_no_larger_than_the_limit_whatever_its_length_says(told: bool) -> None:
    async def story() -> None:
        endpoint = HttpEndpoint(HttpOptions(8080, max_bytes=5), "", Pipeline().inject)
        headers = {"content_length": "12"} if told else {}
        assert (await ask(endpoint, b'{"n":123456}', **headers))[0] == 413

    asyncio.run(story())


def test_who_comes_while_too_many_wait_is_told_to_come_again() -> None:
    async def story() -> None:
        pipeline = Pipeline()
        pipeline.open.clear()
        endpoint = HttpEndpoint(HttpOptions(8080, max_requests=2), "", pipeline.inject)
        waiting = [asyncio.create_task(ask(endpoint)) for _ in range(2)]
        await asyncio.sleep(0)
        status, _, headers = await ask(endpoint)
        assert (status, headers["retry-after"]) == (429, "1")
        pipeline.open.set()
        assert [(await each)[0] for each in waiting] == [200, 200]
        pipeline.away = True
        status, answer, headers = await ask(endpoint)
        assert (status, answer["error"], headers["retry-after"]) == (
            503,
            "no worker took them",
            "1",
        )

    asyncio.run(story())


def test_without_the_token_nothing_is_taken() -> None:
    async def story() -> None:
        pipeline = Pipeline()
        endpoint = HttpEndpoint(HttpOptions(8080), "secret", pipeline.inject)
        assert (await ask(endpoint))[0] == 401
        assert (await ask(endpoint, authorization="Bearer wrong"))[0] == 401
        assert pipeline.taken == []
        assert (await ask(endpoint, authorization="Bearer secret"))[0] == 200

    asyncio.run(story())


def test_records_have_the_trace_of_their_request_unless_an_event_has_one_of_its_own() -> None:
    async def story() -> None:
        pipeline = Pipeline()
        endpoint = HttpEndpoint(HttpOptions(8080), "", pipeline.inject)
        whole, own = (f"00-{letter * 32}-{'c' * 16}-01" for letter in "ab")
        await ask(endpoint, b'{"n":1}\n{"n":2}', traceparent=whole, tracestate="v=1")
        await ask(endpoint, b'{"n":1}')
        event = {"specversion": "1.0", "id": "7", "source": "s", "type": "t"}
        events = [{**event, "traceparent": own}, {**event, "id": "8"}]
        kind = "application/cloudevents-batch+json"
        await ask(endpoint, json.dumps(events).encode(), content_type=kind, traceparent=whole)
        assert pipeline.traces == [f"{whole}\nv=1", f"{whole}\nv=1", "", own, whole]

    asyncio.run(story())


LINES = b'{"n": 1}\n{"n": 2}\n'
ZSTD = bytes(pa.compress(LINES, "zstd", asbytes=True))
RAW = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": gzip.compress(LINES),
    "x-gzip": gzip.compress(LINES),
    "GZIP, identity": gzip.compress(LINES[:9]) + gzip.compress(LINES[9:]),
    "deflate": zlib.compress(LINES),
    "deflate ": RAW.compress(LINES) + RAW.flush(),
    "zstd": ZSTD,
    "identity": LINES,
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_compressed_body_is_unpacked(encoding: str) -> None:
    pipeline = Pipeline()
    endpoint = HttpEndpoint(HttpOptions(8080), "", pipeline.inject)
    status, answer, _ = asyncio.run(ask(endpoint, PACKED[encoding], content_encoding=encoding))
    assert (status, answer["accepted"]) == (200, 2)
    assert [line for line, _ in pipeline.taken] == [b'{"n": 1}', b'{"n": 2}']


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", LINES, 415),
        ("gzip, gzip", gzip.compress(gzip.compress(LINES)), 415),
        ("gzip", LINES, 400),
        ("gzip", gzip.compress(LINES)[:-9], 400),
        ("gzip", gzip.compress(LINES) + b"more", 400),
        ("deflate", zlib.compress(LINES)[:-9], 400),
        ("zstd", ZSTD[:-3], 400),
        ("gzip", gzip.compress(bytes(1_000_000)), 413),
        ("deflate", zlib.compress(bytes(1_000_000)), 413),
        ("zstd", bytes(pa.compress(bytes(1_000_000), "zstd", asbytes=True)), 413),
    ],
    ids=(
        "br",
        "twice",
        "plain",
        "cut",
        "trailing",
        "deflate-cut",
        "zstd-cut",
        "bomb",
        "deflate-bomb",
        "zstd-bomb",
    ),
)
def test_a_body_that_is_not_what_it_says_is_refused_and_nothing_is_taken(
    encoding: str, body: bytes, status: int
) -> None:
    pipeline = Pipeline()
    endpoint = HttpEndpoint(HttpOptions(8080, max_bytes=10_000), "", pipeline.inject)
    found, answer, headers = asyncio.run(ask(endpoint, body, content_encoding=encoding))
    assert found == status, answer
    assert not pipeline.taken
    assert status != 415 or headers["accept-encoding"] == "gzip, deflate, zstd"


def test_a_body_that_stands_still_loses_its_place() -> None:
    async def stalled() -> tuple[int, Any]:
        endpoint = HttpEndpoint(
            HttpOptions(8080, max_requests=1, body_timeout="1s"), "", Pipeline().inject
        )
        sent: list[Any] = []
        gone = asyncio.Event()

        async def receive() -> Any:
            if not sent:
                await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }
        await endpoint.app()(scope, receive, send)
        return sent[0]["status"], (await ask(endpoint))[0]

    assert asyncio.run(stalled()) == (408, 200)


@pytest.mark.parametrize("given", ["soon", "0s", "1h"])
def test_a_time_limit_of_bodies_is_a_duration(given: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        HttpOptions(8080, body_timeout=given)


def test_a_body_that_does_not_come_makes_room_for_another_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millwheel.connect.connectors.http.endpoint._GRACE_S", 0.05)

    async def story() -> None:
        pipeline = Pipeline()
        endpoint = HttpEndpoint(HttpOptions(8080, max_requests=2), "", pipeline.inject)
        never = [asyncio.ensure_future(ask(endpoint, b"stalled")) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await ask(endpoint))[0] == 429, "their bodies may be on their way"
        await asyncio.sleep(0.06)
        assert [(await ask(endpoint))[0] for _ in range(3)] == [200, 200, 200]
        done, _ = await asyncio.wait(never, timeout=0.01)
        assert [task.result()[0] for task in done] == [429], (
            "the oldest went, the other still waits"
        )
        for task in never:
            task.cancel()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example:8080", "origin": "http://evil.example:8080"}, 421),
        ({"origin": "http://evil.example", "content_type": "text/plain"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8080"}, 200),
        ({"host": "ingest.example", "origin": "http://ingest.example"}, 200),
        ({"host": "any.name.of.a.container"}, 200),
        ({"origin": "https://shop.example", "sec_fetch_site": "cross-site"}, 200),
    ],
)
def test_pages_of_other_sites_send_no_records_unless_allowed(
    headers: dict[str, str], status: int
) -> None:
    options = HttpOptions(
        8080, allow_hosts=("ingest.example",), allow_origins=("https://shop.example",)
    )

    async def story() -> None:
        pipeline = Pipeline()
        assert (await ask(HttpEndpoint(options, "", pipeline.inject), **headers))[0] == status
        assert bool(pipeline.taken) == (status == 200)

    asyncio.run(story())


def test_a_health_check_may_use_any_name() -> None:
    async def story() -> None:
        endpoint = HttpEndpoint(HttpOptions(8080), "", Pipeline().inject)
        assert (await ask(endpoint, path="/health", host="10.1.2.3"))[0] == 200

    asyncio.run(story())
