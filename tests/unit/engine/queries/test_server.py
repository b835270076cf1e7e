"""The server over real sockets, with a worker that answers at once, later, or never."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import pytest
from msgspec.structs import replace

from millwheel.adapters.front.limits import FrontLimits
from millwheel.core.model.names import WorkerName
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService
from millwheel.engine.queries.model import AskedQueries, Elsewhere
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.server import QueryServer
from millwheel.errors import FencedError, SetupError
from tests.unit.engine.queries.test_commands import ONE

SERVICE = QueryService(
    Catalog({"clicks": "int", "views": "int"}, frozenset()), ClusterMap("w0", "clicks"), lambda: 1
)
WAIT_S = 20.0


def fine() -> None: ...


def sealed() -> None:
    raise FencedError("the journal is sealed")


@contextmanager
def served(  # type: ignore[no-untyped-def]
    check=fine, limits: FrontLimits | None = None, service: QueryService = SERVICE
) -> Iterator[tuple[socket.socket, SimpleQueue[AskedQueries]]]:
    asked: SimpleQueue[AskedQueries] = SimpleQueue()
    server = QueryServer("127.0.0.1:0", service, asked.put, check, limits=limits)
    server.start()
    host, port = server.address.split(":")
    try:
        with socket.create_connection((host, int(port)), WAIT_S) as client:
            yield client, asked
    finally:
        server.stop()


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


def test_replies_of_a_pipeline_come_in_order_whatever_is_answered_first() -> None:
    with served() as (client, asked):
        client.sendall(b"GET clicks.n:1:1h\r\nPING\r\nGET clicks.n:2:1h\r\n")
        batch = asked.get(timeout=WAIT_S)
        assert [query.key for query in batch.queries] == [1, 2]  # both in one batch
        batch.reply([ONE, ONE])
        assert read(client, 21) == b"$1\r\n3\r\n+PONG\r\n$1\r\n3\r\n"


def test_malformed_input_is_an_error_and_the_connection_lives_on() -> None:
    with served() as (client, _):
        client.sendall(b"PING\r\n")
        assert read(client, 7) == b"+PONG\r\n"
        client.sendall(b"*x\r\n")
        assert client.recv(500).startswith(b"-ERR Protocol error: ")
        client.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert read(client, 7) == b"+PONG\r\n"


def test_a_worker_that_was_replaced_refuses_its_answers() -> None:
    with served(sealed) as (client, asked):
        client.sendall(b"GET clicks.n:1:1h\r\n")
        asked.get(timeout=WAIT_S).reply([ONE])
        assert client.recv(500).startswith(b"-TRYAGAIN this worker was replaced")


def test_quit_ends_the_connection_behind_the_replies_before_it() -> None:
    with served() as (client, asked):
        client.sendall(b"GET clicks.n:1:1h\r\nQUIT\r\nPING\r\n")
        asked.get(timeout=WAIT_S).reply([ONE])
        assert read(client, 100) == b"$1\r\n3\r\n+OK\r\n"


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SetupError, match="Queries cannot be served at"):
            QueryServer(f"127.0.0.1:{taken.getsockname()[1]}", SERVICE, lambda asked: None, fine)


def test_a_worker_asks_another_one_for_its_part_of_a_formula() -> None:
    named = NamedQueries([QuerySpec("ctr", "clicks.n / views.n", 1)])
    catalog = Catalog({"clicks": "int", "views": "int"}, frozenset(), named)
    asked: SimpleQueue[AskedQueries] = SimpleQueue()
    cluster = ClusterMap("w1", "clicks")
    with served() as (there, other):
        cluster.addresses = {"w0": _address(there)}
        server = QueryServer(
            "127.0.0.1:0", QueryService(catalog, cluster, lambda: 9), asked.put, fine
        )
        server.start()
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), WAIT_S) as client:
            client.sendall(b"GET ctr:5\r\nPING\r\n")
            asked.get(timeout=WAIT_S).reply([ONE, Elsewhere(WorkerName("w0"))])
            batch = other.get(timeout=WAIT_S)
            assert [
                (each.indicator, each.key, each.window_us, each.until_us) for each in batch.queries
            ] == [("views", 5, 1, 9)]
            batch.reply([replace(ONE, values={"n": 6})])
            assert read(client, 16) == b"$3\r\n0.5\r\n+PONG\r\n"
        server.stop()


def _behind_another(count: int, seen: SimpleQueue[AskedQueries]) -> tuple[QueryServer, ClusterMap]:
    """A server whose formula ``ctr`` needs an answer of w0; that formula is asked by ``count``
    names in one MGET."""
    named = NamedQueries([QuerySpec("ctr", "clicks.n / views.n", 1)])
    catalog = Catalog({"clicks": "int", "views": "int"}, frozenset(), named)
    cluster = ClusterMap("w1", "clicks")
    return QueryServer(
        "127.0.0.1:0", QueryService(catalog, cluster, lambda: 9), seen.put, fine
    ), cluster


def test_a_gathering_that_fails_is_an_error_and_the_replies_behind_it_come() -> None:
    asked: SimpleQueue[AskedQueries] = SimpleQueue()
    with served() as (there, other):
        server, cluster = _behind_another(1, asked)
        cluster.addresses = {"w0": _address(there)}
        server.start()
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), WAIT_S) as client:
            client.sendall(b"GET ctr:5\r\nPING\r\n")
            asked.get(timeout=WAIT_S).reply([ONE, Elsewhere(WorkerName("w0"))])
            # A worker of another version, whose answer has no values.
            other.get(timeout=WAIT_S).reply([replace(ONE, values=None)])  # type: ignore[arg-type]
            found = b""
            while not found.endswith(b"+PONG\r\n"):
                found += client.recv(500)
            assert found.startswith(b"-")
        server.stop()


def test_queries_wait_until_other_workers_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.engine.queries.connection.MAX_WAITING", 1)
    asked: SimpleQueue[AskedQueries] = SimpleQueue()
    with served() as (there, other):
        server, cluster = _behind_another(1, asked)
        cluster.addresses = {"w0": _address(there)}
        server.start()
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), WAIT_S) as client:
            client.sendall(b"GET ctr:5\r\n")
            asked.get(timeout=WAIT_S).reply([ONE, Elsewhere(WorkerName("w0"))])
            batch = other.get(timeout=WAIT_S)
            client.sendall(b"GET ctr:6\r\n")
            with pytest.raises(Empty):  # it is read no further
                asked.get(timeout=0.1)
            batch.reply([replace(ONE, values={"n": 6})])
            assert asked.get(timeout=WAIT_S).queries[0].key == 6
        server.stop()


def _address(client: socket.socket) -> str:
    host, port = client.getpeername()
    return f"{host}:{port}"


def test_a_client_that_never_authenticates_has_a_deadline_and_one_that_did_has_none() -> None:
    service = QueryService(
        SERVICE.catalog,
        SERVICE.cluster,
        lambda: 1,
        lambda shown: shown == b"the-token-of-this-pipeline",
    )
    limits = FrontLimits(silent_s=0.2, head_s=0.2)
    with served(limits=limits, service=service) as (member, _):
        member.sendall(b"AUTH the-token-of-this-pipeline\r\n")
        assert read(member, 5) == b"+OK\r\n"
        with socket.create_connection(member.getpeername(), WAIT_S) as stranger:
            stranger.sendall(b"PING\r\n" * 3)
            assert read(stranger, 100) == b"+PONG\r\n" * 3, "hung up on"
        member.sendall(b"PING\r\n")
        assert read(member, 7) == b"+PONG\r\n"


def test_beyond_the_most_connections_a_newcomer_is_refused_and_members_stay() -> None:
    with served(limits=FrontLimits(most=1)) as (member, _):
        member.sendall(b"PING\r\n")
        assert read(member, 7) == b"+PONG\r\n"
        with socket.create_connection(member.getpeername(), WAIT_S) as late:
            late.sendall(b"PING\r\n")
            assert late.recv(500) == b"-ERR max number of clients reached\r\n"
            assert late.recv(500) == b""
        member.sendall(b"PING\r\n")
        assert read(member, 7) == b"+PONG\r\n"
