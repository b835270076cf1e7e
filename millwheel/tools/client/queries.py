"""Queries of a running pipeline from any Python program, by HTTP (`pip install
'millwheel-spark[client]'`).

with Queries("http://localhost:8080") as queries:
    answer = queries.ask("clicks", 42, "3h")
    print(answer.values["n"], answer.complete)
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from millwheel.engine.queries.model import QueryAnswer, QueryError
from millwheel.engine.queries.replies import answer_from
from millwheel.errors import SetupError
from millwheel.tools.client.query_requests import Ask, Instant, Window, body_of, pieces_of

if TYPE_CHECKING:
    import httpx

    Outcome = httpx.Response | Exception

_DEADLINE_MS = 1_000  # the gateway's default as well
_MARGIN_S = 5.0
"""How long after the deadline of a request its reply may come (s): time for the network, and for a
busy gateway."""
_BAD_GATEWAY = 502
"""A balancer's reply when the connection to the gateway it chose has broken; no gateway sends
it."""
_PAUSES_S = (0.0, 0.05, 0.2)
"""Before each further attempt (s). A gateway that is killed accepts connections until all of its
memory is gone, some 10 ms, so a second attempt may break as well."""
_decode = msgspec.json.Decoder().decode


class _Client:
    """The common part of both clients: makes requests and reads replies."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        ca: str = "",
        root: str = "",
        deadline_ms: int = _DEADLINE_MS,
        stale: bool = True,
    ) -> None:
        self._url = url.rstrip("/")
        token = token or token_for(self._url, root)
        self._request_options = {"deadline_ms": deadline_ms, "stale": stale}
        self._options: dict[str, Any] = {
            "headers": {"authorization": f"Bearer {token}"} if token else {},
            "timeout": deadline_ms / 1_000 + _MARGIN_S,
        }
        if ca:
            self._options["verify"] = _context(ca)

    def _requests(self, asks: Sequence[Ask | str]) -> Iterator[bytes]:
        for piece in pieces_of(asks):
            yield body_of(piece, self._request_options)

    def _answers(self, reply: httpx.Response) -> list[QueryAnswer | QueryError]:
        return [_answer(each) for each in self._read(reply)["answers"]]

    def _read(self, reply: httpx.Response) -> Any:
        try:
            document = _decode(reply.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        if reply.status_code != 200:
            outcome = (
                _answer(document) if isinstance(document, Mapping) and "error" in document else None
            )
            sentence = f"{self._url} answers with status {reply.status_code}"
            raise (
                outcome if isinstance(outcome, QueryError) else QueryError("unavailable", sentence)
            )
        if not isinstance(document, Mapping):
            raise QueryError(
                "unavailable",
                f"{self._url} is not a gateway of queries: its reply is not a JSON object",
            )
        return document

    def _outcome(self, outcome: Outcome) -> httpx.Response:
        """The reply of the last attempt. Raises QueryError where there is none."""
        if isinstance(outcome, Exception):
            why = outcome or type(outcome).__name__
            raise QueryError("unavailable", f"{self._url} does not answer: {why}") from outcome
        return outcome


class Queries(_Client):
    """Asks a gateway (``millwheel serve``). Use it in a ``with`` block, or :meth:`close` it.
    Several threads may ask.

    ``url`` is the address of the gateway. ``token`` is the token of the run (`millwheel token
    ROOT`); "" takes it from ``root``, the root of the run on this machine, or, if the gateway is on
    this machine too, from the only run in ``.millwheel``. ``ca`` is the path of ``ca.pem`` of the
    run's security folder (host names in certificates are not checked: the CA is the identity). The
    gateway retries until
    ``deadline_ms`` while a worker is down; with ``stale`` a standby may answer meanwhile.

    A question whose connection breaks, or for which a balancer has 502, is asked three times more
    within 250 ms. One without an answer raises :class:`QueryError`, with a ``code`` for programs
    and a ``sentence`` for people.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        ca: str = "",
        root: str = "",
        deadline_ms: int = _DEADLINE_MS,
        stale: bool = True,
    ) -> None:
        super().__init__(url, token=token, ca=ca, root=root, deadline_ms=deadline_ms, stale=stale)
        self._http = _httpx().Client(**self._options)

    def ask(
        self,
        indicator: str,
        key: object,
        window: Window = None,
        *,
        until: Instant = None,
        mode: str = "covering",
        consistency: str = "durable",
    ) -> QueryAnswer:
        """The answer to one question. All arguments as in :class:`Ask`. Raises QueryError.

        queries.ask("clicks", 42, "3h", until=1_700_000_000_000_000, mode="inside")
        """
        return _only(self.ask_many([Ask(indicator, key, window, until, mode, consistency)]))

    def value(
        self,
        indicator: str,
        key: object,
        window: Window = None,
        *,
        until: Instant = None,
        mode: str = "covering",
        consistency: str = "durable",
    ) -> Any:
        """The value of an indicator with a single value: a named query, a formula, or
        ``COMPUTATION.NAME``. Raises QueryError."""
        return _value(
            self.ask(indicator, key, window, until=until, mode=mode, consistency=consistency)
        )

    def ask_many(self, asks: Sequence[Ask | str]) -> list[QueryAnswer | QueryError]:
        """The outcome of each question, in order: an answer, or the QueryError as a value. A string
        is a name as in the Redis protocol: ``clicks:42:3h``. Raises QueryError when the gateway
        does not answer at all."""
        outcomes: list[QueryAnswer | QueryError] = []
        for body in self._requests(asks):
            outcomes += self._answers(self._call("POST", "/v1/query", body))
        return outcomes

    def indicators(self) -> Mapping[str, Any]:
        """All that can be asked: ``computations`` and ``queries``, by name. Raises QueryError."""
        document: Mapping[str, Any] = self._read(self._call("GET", "/v1/indicators"))
        return document

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def __enter__(self) -> Queries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, verb: str, path: str, body: bytes | None = None) -> httpx.Response:
        ask = partial(self._http.request, verb, self._url + path, content=body)
        for attempt in count():
            outcome: Outcome
            try:
                outcome = ask()
            except _httpx().HTTPError as ex:
                outcome = ex
            if (pause_s := pause_after(outcome, attempt)) is None:
                break
            time.sleep(pause_s)
        return self._outcome(outcome)


class AsyncQueries(_Client):
    """:class:`Queries` for asyncio: used in an ``async with`` block; all methods are awaited.

    async with AsyncQueries("http://localhost:8080") as queries:
        ctr = await queries.value("ctr", 42)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        ca: str = "",
        root: str = "",
        deadline_ms: int = _DEADLINE_MS,
        stale: bool = True,
    ) -> None:
        super().__init__(url, token=token, ca=ca, root=root, deadline_ms=deadline_ms, stale=stale)
        self._http = _httpx().AsyncClient(**self._options)

    async def ask(
        self,
        indicator: str,
        key: object,
        window: Window = None,
        *,
        until: Instant = None,
        mode: str = "covering",
        consistency: str = "durable",
    ) -> QueryAnswer:
        """As :meth:`Queries.ask`."""
        return _only(await self.ask_many([Ask(indicator, key, window, until, mode, consistency)]))

    async def value(
        self,
        indicator: str,
        key: object,
        window: Window = None,
        *,
        until: Instant = None,
        mode: str = "covering",
        consistency: str = "durable",
    ) -> Any:
        """As :meth:`Queries.value`."""
        return _value(
            await self.ask(indicator, key, window, until=until, mode=mode, consistency=consistency)
        )

    async def ask_many(self, asks: Sequence[Ask | str]) -> list[QueryAnswer | QueryError]:
        """As :meth:`Queries.ask_many`."""
        outcomes: list[QueryAnswer | QueryError] = []
        for body in self._requests(asks):
            outcomes += self._answers(await self._call("POST", "/v1/query", body))
        return outcomes

    async def indicators(self) -> Mapping[str, Any]:
        """As :meth:`Queries.indicators`."""
        document: Mapping[str, Any] = self._read(await self._call("GET", "/v1/indicators"))
        return document

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncQueries:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, verb: str, path: str, body: bytes | None = None) -> httpx.Response:
        ask = partial(self._http.request, verb, self._url + path, content=body)
        for attempt in count():
            outcome: Outcome
            try:
                outcome = await ask()
            except _httpx().HTTPError as ex:
                outcome = ex
            if (pause_s := pause_after(outcome, attempt)) is None:
                break
            await asyncio.sleep(pause_s)
        return self._outcome(outcome)


def pause_after(outcome: Outcome, attempt: int) -> float | None:
    """How long to wait (s) before a request is sent again whose attempt of this number, from 0,
    came to this; None where the outcome stands."""
    again = (
        isinstance(outcome, _broken())
        if isinstance(outcome, Exception)
        else outcome.status_code == _BAD_GATEWAY
    )
    return _PAUSES_S[attempt] if again and attempt < len(_PAUSES_S) else None


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError as ex:
        raise SetupError(
            "The client of queries needs httpx: pip install 'millwheel-spark[client]'"
        ) from ex
    return httpx


def _broken() -> tuple[type[Exception], ...]:
    """A connection that ended before its answer, as when a gateway dies. Asking changes nothing, so
    the question is asked again, by a connection that a balancer leads elsewhere."""
    httpx = _httpx()
    return httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError


def _context(ca: str) -> ssl.SSLContext:
    """Trusts that CA alone. Host names are not checked, because addresses change: the CA is the
    identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(ca)
    except OSError as ex:
        raise SetupError(f"{ca} is not a certificate of a CA: {ex.strerror or ex}") from ex
    return context


def _answer(document: Mapping[str, Any]) -> QueryAnswer | QueryError:
    if "error" in document:
        return QueryError(
            str(document["error"].get("code")), str(document["error"].get("sentence"))
        )
    return answer_from(document)


def _only(outcomes: Sequence[QueryAnswer | QueryError]) -> QueryAnswer:
    (one,) = outcomes
    if isinstance(one, QueryError):
        raise one
    return one


def _value(answer: QueryAnswer) -> Any:
    if len(answer.values) != 1:
        names = ", ".join(answer.values)
        raise QueryError(
            "unknown_indicator",
            f"there are {len(answer.values)} values ({names}); name one, or use ask",
        )
    return next(iter(answer.values.values()))


def token_for(url: str, root: str = "") -> str:
    """The token for the gateway at ``url``, from the root of the run; "" for none. Without ``root``
    only a gateway on this machine gets one, of the only run in ``.millwheel``.

    Raises SetupError when ``root`` is given and has no run.
    """
    from millwheel.adapters.grpc.security import is_loopback, load_security
    from millwheel.control.roots.attach import find_root
    from millwheel.control.roots.root import read_run

    parts = urlsplit(url)
    if not root and not is_loopback(parts.hostname or ""):
        return ""
    try:
        run = read_run(find_root(root))
    except SetupError:
        if root:
            raise
        return ""
    if run is None and root:
        raise SetupError(f"{root} is not the root of a run: give the --root of its `millwheel run`")
    credentials = load_security(run.security, "client") if run is not None else None
    if credentials is None:
        return ""
    return (
        credentials.token if parts.scheme == "https" else credentials.proof(f":{parts.port or 80}")
    )
