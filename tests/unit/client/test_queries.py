"""The clients of queries, against a real gateway over made-up workers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from millwheel.client import AsyncQueries, Queries, QueryAnswer, QueryError
from millwheel.errors import SetupError
from millwheel.launch.certificates import make_set
from millwheel.queries.rendering import json_reply
from tests.unit.gateway.test_app import TOKEN, Links, admits, client
from tests.unit.queries.peers.test_asking import Refusal

ANSWER = QueryAnswer({"n": 3}, 10, 70, 65, True, "clicks-0", 4, 9)
BOTH = QueryAnswer({"n": 3, "spend": 1.5}, 10, 70, 65, True, "clicks-0", 4, 9, lag_us=7)


def said(command: bytes) -> Any:
    if b"999us" in command:
        return Refusal("ERR beyond_keep: too far back")
    return json_reply(BOTH if b"clicks\r\n" in command else ANSWER).split(b"\r\n")[1]


@contextmanager
def served(**options: Any) -> Iterator[str]:
    """A gateway on a free port."""
    app = client(links=Links(**{"h:1": said}), admits=admits if options else None).app
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"{'https' if options else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as found:
        yield found


def test_questions_are_answered_one_by_one_and_together(url: str) -> None:
    with Queries(url) as queries:
        assert queries.ask("clicks", 42, "3h") == BOTH
        assert queries.value("cpc", 42) == 3
        assert queries.value("clicks.n * 2", 42, "3h") == 3
        found = queries.ask_many(["clicks.n:42:3h", "other:42", "cpc:42"])
        assert (found[0], found[2]) == (ANSWER, ANSWER)
        assert isinstance(found[1], QueryError)
        assert found[1].code == "unknown_indicator"
        assert list(queries.indicators()["queries"]) == ["cpc"]


def test_asyncio_asks_the_same(url: str) -> None:
    async def run() -> None:
        async with AsyncQueries(url) as queries:
            both = await asyncio.gather(queries.ask("clicks", 42, "3h"), queries.value("cpc", 42))
            assert both == [BOTH, 3]
            with pytest.raises(QueryError, match="too far back"):
                await queries.ask("clicks", 42, 999)
            assert len(await queries.ask_many(["cpc:1"] * 3)) == 3
            assert "cpc" in (await queries.indicators())["queries"]

    asyncio.run(run())


def test_errors_are_sentences_with_a_code(url: str) -> None:
    with Queries(url) as queries:
        for ask, code in ((("clicks", 42, 999), "beyond_keep"), (("clicks", "x", "3h"), "wrong_key")):
            with pytest.raises(QueryError) as caught:
                queries.ask(*ask)
            assert caught.value.code == code
        with pytest.raises(QueryError, match=r"2 values \(n, spend\); name one"):
            queries.value("clicks", 42, "3h")
    with Queries(f"{url}/nowhere") as other, pytest.raises(QueryError, match="answers with status 404"):
        other.indicators()
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Queries(gone) as nobody, pytest.raises(QueryError, match=f"{gone} does not answer") as silent:
        nobody.ask("clicks", 42)
    assert silent.value.code == "unavailable"


def test_the_token_and_the_ca_of_the_pipeline_are_enough(tmp_path: Path) -> None:
    folder = Path(make_set(str(tmp_path / "set")))
    own = {"ssl_certfile": str(folder / "worker.pem"), "ssl_keyfile": str(folder / "worker.key")}
    ca = str(folder / "ca.pem")
    with served(**own) as url:
        with Queries(url, token=TOKEN, ca=ca) as queries:
            assert queries.value("cpc", 42) == 3
        with Queries(url, ca=ca) as other, pytest.raises(QueryError, match="show the token"):
            other.value("cpc", 42)
        with Queries(url) as doubtful, pytest.raises(QueryError, match="does not answer"):
            doubtful.value("cpc", 42)
    with pytest.raises(SetupError, match="no certificate"):
        Queries(url, ca=str(tmp_path / "none.pem"))
