"""What real servers answer to lookups."""

from __future__ import annotations

import pytest

from millwheel.connectors.postgres.lookup import build_postgres_lookup
from millwheel.connectors.redis.lookup import build_redis_lookup
from millwheel.errors import SetupError, UnavailableError
from millwheel.lookups.base import NoAnswer, answers_to
from tests.servers.postgres import Server
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow


def test_redis_answers_hashes_and_strings(redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.flushall()
    client.hset("item:tea", mapping={"cents": 80})
    client.rpush("item:list", "x")
    client.set("item:ink", "[1]")
    lookup = build_redis_lookup({"url": redis_server.url, "key": "item:{item}"})
    lookup.check()
    found = answers_to(lookup, [("tea",), ("owl",), ("list",), ([1],)])
    assert found[:2] == [{"cents": "80"}, None]
    assert [type(answer) for answer in found[2:]] == [NoAnswer, NoAnswer]
    assert "WRONGTYPE" in found[2].reason
    strings = {"url": redis_server.url, "key": "item:{item}", "kind": "string"}
    assert answers_to(build_redis_lookup(strings), [("ink",), ("owl",)]) == ["[1]", None]
    assert answers_to(build_redis_lookup({**strings, "format": "json"}), [("ink",)]) == [[1]]


def test_redis_that_is_not_there_is_waited_for() -> None:
    lookup = build_redis_lookup({"url": "redis://127.0.0.1:1/0", "key": "item:{item}"})
    with pytest.raises(SetupError, match="does not answer"):
        lookup.check()
    with pytest.raises(UnavailableError):
        lookup.look_up([("tea",)])


def test_postgres_answers_all_keys_with_one_query(server: Server) -> None:
    server.sql("DROP TABLE IF EXISTS items")
    server.sql("CREATE TABLE items (id int, country text, cents int, since timestamptz)")
    server.sql("INSERT INTO items VALUES (1, 'de', 80, '2026-01-01'), (2, 'de', 95, NULL), (2, 'fr', 99, NULL)")
    both = build_postgres_lookup({"dsn": server.dsn, "table": "items", "by": ["id", "country"], "columns": ["cents"]})
    both.check()
    assert answers_to(both, [(2, "de"), (3, "de"), (2, "fr")]) == [{"cents": 95}, None, {"cents": 99}]
    one = build_postgres_lookup({"dsn": server.dsn, "query": "SELECT id, cents FROM items", "by": "id"})
    found = answers_to(one, [(1,), ("no number",), (2,), (5,)])
    assert found[0] == {"id": 1, "cents": 80}
    assert "invalid input syntax for type integer" in found[1].reason
    assert "several rows" in found[2].reason
    assert found[3] is None
    one.close()
    both.close()


def test_a_column_that_is_not_there_is_a_sentence(server: Server) -> None:
    server.sql("DROP TABLE IF EXISTS items")
    server.sql("CREATE TABLE items (id int)")
    with pytest.raises(SetupError, match=r"nr.* does not exist"):
        build_postgres_lookup({"dsn": server.dsn, "table": "items", "by": "nr"}).check()
