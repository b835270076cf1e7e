"""Programs of others ask the server of queries as they ask Redis: redis-cli, redis-py, what
Grafana's source sends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from millwheel.adapters.grpc.certificates import server_context
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService
from millwheel.engine.queries.model import Answer, AskedQueries
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.server import QueryServer
from millwheel.launch.certificates import make_set
from tests.servers.redis import command

pytestmark = pytest.mark.slow

CATALOG = Catalog({"clicks": "int"}, frozenset({"clicks"}), NamedQueries())


def answered(asked: AskedQueries) -> None:
    """Every key has its own number."""
    asked.reply(
        [Answer({"n": each.key}, 10, 70, 65, True, "clicks-0", 4, 9) for each in asked.queries]
    )


@contextmanager
def served(security: Security | None = None) -> Iterator[str]:
    cluster = ClusterMap(
        "w0", "clicks", {}, RangeTable("clicks", (ShardEntry("clicks-0", tile(1)[0], "w0", 1),), 1)
    )
    service = QueryService(
        CATALOG,
        cluster,
        lambda: 1,
        (lambda shown: shown == security.token.encode()) if security else None,
    )
    tls = server_context(security.tls) if security and security.tls else None
    server = QueryServer("127.0.0.1:0", service, answered, lambda: None, tls)
    cluster.addresses = {"w0": server.address}
    server.start()
    try:
        yield server.address.rpartition(":")[2]
    finally:
        server.stop()


def cli(port: str, *words: str, given: str = "") -> str:
    """What redis-cli prints."""
    server = command()
    called = [
        *server[:-1],
        server[-1].removesuffix("redis-server") + "redis-cli",
        "-h",
        "127.0.0.1",
        "-p",
        port,
    ]
    done = subprocess.run(
        [*called, *words], input=given, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_redis_cli_asks_one_by_one_by_cluster_and_in_bulk() -> None:
    with served() as port:
        assert cli(port, "GET", "clicks:42:3h") == "42\n"
        assert cli(port, "-c", "-3", "HGETALL", "clicks:42:3h").split()[:2] == ["n", "42"]
        assert "keys of clicks are whole numbers" in cli(port, "GET", "clicks:x:3h")
        lines = "".join(f"GET clicks:{key}:3h\n" for key in range(1_000))
        assert cli(port, given=lines).split() == [str(key) for key in range(1_000)]
        assert "[OK] All 16384 slots covered." in cli(
            port, "--cluster", "check", f"127.0.0.1:{port}"
        )


def test_with_tls_and_the_token_clients_need_the_ca_and_a_password(tmp_path: Path) -> None:
    folder = make_set(str(tmp_path / "set"))
    security = load_security(folder, "worker")
    assert security is not None
    with served(security) as port:
        tls = ["--tls", "--cacert", f"{folder}/ca.pem"]
        assert "42" in cli(
            port, *tls, "-a", security.token, "--no-auth-warning", "GET", "clicks:42:3h"
        )
        assert "NOAUTH" in cli(port, *tls, "GET", "clicks:42:3h")
        assert "Error" in cli(port, "GET", "clicks:42:3h")
        given: dict[str, Any] = {
            "ssl": True,
            "ssl_ca_certs": f"{folder}/ca.pem",
            "ssl_check_hostname": False,
        }
        given["retry"] = Retry(NoBackoff(), 0)
        client = redis.Redis(port=int(port), password=security.token, **given)
        assert client.get("clicks:7:3h") == b"7"
        client.close()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=int(port), password="wrong", **given).get("clicks:7:3h")


def test_what_grafanas_source_sends_is_understood() -> None:
    with served() as port:
        client = redis.Redis(port=int(port), decode_responses=True, protocol=3)
        assert client.execute_command("CLIENT", "SETINFO", "LIB-NAME", "radix") == "OK"
        assert client.ping()
        assert client.info()["redis_mode"] == "cluster"
        assert "get" in client.command()
        assert "cluster_state:ok" in client.execute_command("CLUSTER", "INFO")
        client.close()


def test_a_million_keys_of_one_command_are_one_error_and_the_connection_lives_on() -> None:
    with served() as port:
        client = redis.Redis(port=int(port), single_connection_client=True)
        with pytest.raises(redis.ResponseError, match="at most"):
            client.mget(["clicks:1:3h"] * 1_000_000)
        with pytest.raises(redis.ResponseError, match="at most"):
            client.mget(["clicks:1:3h"] * 10_001)
        assert client.mget([f"clicks:{key}:3h" for key in range(10_000)])[9_999] == b"9999"
        client.close()
