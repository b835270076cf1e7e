"""The clients of queries, against a real gateway over made-up workers."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from millwheel.adapters.grpc.security import load_security, make_token
from millwheel.client import AsyncQueries, Queries, QueryAnswer, QueryError
from millwheel.control.roots.root import ACCESS, Root, RunInfo
from millwheel.engine.queries.replies import json_reply
from millwheel.errors import SetupError
from millwheel.launch.certificates import make_set
from millwheel.tools.client.queries import pause_after, token_for
from tests.unit.engine.queries.test_peer_client import Refusal
from tests.unit.tools.gateway.test_app import TOKEN, Links, admits, client

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


@contextmanager
def breaking(url: str, times: int, said: bytes = b"") -> Iterator[str]:
    """A balancer before the gateway at ``url``, whose first connections break once they have
    asked, behind these words."""
    port = int(url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            for number in range(times + 1):
                with listening.accept()[0] as asked:
                    sent = asked.recv(65_536)
                    if number < times:
                        asked.sendall(said)
                        continue
                    with socket.create_connection(("127.0.0.1", port)) as gateway:
                        gateway.sendall(sent)
                        while piece := gateway.recv(65_536):
                            asked.sendall(piece)

        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "sentence"), [(b"", "does not answer"), (BAD_GATEWAY, "answers with status 502")]
)
def test_a_question_whose_connection_breaks_is_asked_three_times_more(
    url: str, said: bytes, sentence: str
) -> None:
    with breaking(url, 3, said) as thrice, Queries(thrice) as queries:
        assert queries.indicators()["queries"]
    with (
        breaking(url, 4, said) as again,
        Queries(again) as queries,
        pytest.raises(QueryError, match=sentence),
    ):
        queries.indicators()

    async def run() -> None:
        with breaking(url, 3, said) as thrice:
            async with AsyncQueries(thrice) as queries:
                assert (await queries.indicators())["queries"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("outcome", "pauses_s"),
    [
        (httpx.ReadError("it breaks"), [0.0, 0.05, 0.2, None]),
        (httpx.Response(502), [0.0, 0.05, 0.2, None]),
        (httpx.ConnectError("nobody is there"), [None]),
        (httpx.ReadTimeout("it is late"), [None]),
        (httpx.Response(503), [None]),
        (httpx.Response(200), [None]),
    ],
    ids=repr,
)
def test_what_breaks_is_sent_again_and_everything_else_stands(
    outcome: httpx.Response | Exception, pauses_s: list[float | None]
) -> None:
    assert [pause_after(outcome, attempt) for attempt in range(len(pauses_s))] == pauses_s


def test_errors_are_sentences_with_a_code(url: str) -> None:
    with Queries(url) as queries:
        for ask, code in (
            (("clicks", 42, 999), "beyond_keep"),
            (("clicks", "x", "3h"), "wrong_key"),
        ):
            with pytest.raises(QueryError) as caught:
                queries.ask(*ask)
            assert caught.value.code == code
        with pytest.raises(QueryError, match=r"2 values \(n, spend\); name one"):
            queries.value("clicks", 42, "3h")
    with (
        Queries(f"{url}/nowhere") as other,
        pytest.raises(QueryError, match="answers with status 404"),
    ):
        other.indicators()
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    with (
        Queries(gone) as nobody,
        pytest.raises(QueryError, match=f"{gone} does not answer") as silent,
    ):
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
    with pytest.raises(SetupError, match="is not a certificate"):
        Queries(url, ca=str(tmp_path / "none.pem"))


def run_on(root: Path, is_open: bool = False) -> None:
    """A root on which a run was started."""
    held = Root.open(str(root), "clicks")
    make_token(held.path / ACCESS)
    security = "" if is_open else str(held.path / ACCESS)
    held.write_run(RunInfo("clicks", "i", "local:/x", os.getpid(), security=security))
    held.close()


def test_a_gateway_on_this_machine_is_shown_a_proof_of_the_only_runs_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert token_for("http://localhost:8080") == "", "there is no run"
    run_on(tmp_path / ".millwheel" / "clicks")
    known = load_security(str(tmp_path / ".millwheel" / "clicks" / ACCESS))
    assert known is not None
    shown = token_for("http://localhost:8080")
    assert known.admits(shown.encode(), "127.0.0.1:8080")
    assert known.token != shown
    assert token_for("http://elsewhere:8080") == "", "nothing is shown to others unasked"


def test_of_a_root_that_is_named_the_token_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "root"
    run_on(root)
    known = load_security(str(root / ACCESS))
    assert known is not None
    assert token_for("https://elsewhere", str(root)) == known.token
    with pytest.raises(SetupError, match="is not the root of a run"):
        token_for("http://localhost", str(tmp_path / "none"))


def test_a_run_that_wants_no_token_is_shown_none(tmp_path: Path) -> None:
    run_on(tmp_path / "root", is_open=True)
    assert token_for("http://localhost", str(tmp_path / "root")) == ""
