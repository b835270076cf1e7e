"""What real servers answer to lookups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millwheel.connect.connectors.postgres.lookup import build_postgres_lookup
from millwheel.connect.connectors.redis.lookup import build_redis_lookup
from millwheel.connect.lookups.base import NoAnswer, answers_to
from millwheel.errors import SetupError, UnavailableError
from tests.servers.postgres import Server
from tests.servers.redis import RedisServer
from tests.slow.runs import Run

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
    server.sql(
        "INSERT INTO items VALUES (1, 'de', 80, '2026-01-01'), (2, 'de', 95, NULL), (2, 'fr', 99,"
        " NULL)"
    )
    both = build_postgres_lookup(
        {"dsn": server.dsn, "table": "items", "by": ["id", "country"], "columns": ["cents"]}
    )
    both.check()
    assert answers_to(both, [(2, "de"), (3, "de"), (2, "fr")]) == [
        {"cents": 95},
        None,
        {"cents": 99},
    ]
    one = build_postgres_lookup(
        {"dsn": server.dsn, "query": "SELECT id, cents FROM items", "by": "id"}
    )
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


PRICED = """
pipeline: shop
streams:
  orders: {source: {files: {path: "${input}", format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  priced:
    input: {orders: {key: user}}
    enrich: {lookup: {redis: {url: "${url}", key: "item:{item}"}}, fields: {cents: price},
      cache: {size: 3, ttl: 1m}}
    output: priced
sinks:
  priced: {files: {path: "${output}/priced", flush: 50ms}}
"""
ORDERS, ITEMS, USERS = 60_000, 7, 40


def test_each_order_is_priced_once_while_a_worker_is_killed(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    client = redis_server.client()
    client.flushall()
    for item in range(1, ITEMS):  # one item has no price
        client.hset(f"item:i{item}", mapping={"price": item * 10})
    orders = [
        {"at": n, "n": n, "user": f"u{n * 31 % USERS}", "item": f"i{n % ITEMS}"}
        for n in range(ORDERS)
    ]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(order) + "\n" for order in orders))
    (tmp_path / "p.yaml").write_text(PRICED)
    params = {
        "input": str(tmp_path / "orders.jsonl"),
        "output": str(tmp_path / "out"),
        "url": redis_server.url,
    }
    run = Run(tmp_path / "p.yaml", tmp_path, params).start().until_reading()
    killed = run.kill_at_random(("millwheel.engine.workers",), seed=1, times=1, pause_s=(0.0, 0.02))
    run.wait()
    assert run.code == 0, run.said
    assert killed["millwheel.engine.workers"] == 1
    assert run.summary["restarts"], "the kill came too late"
    files = sorted((tmp_path / "out" / "priced").glob("part-*.jsonl"))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    prices = {f"i{item}": str(item * 10) if item else None for item in range(ITEMS)}
    assert sorted(rows, key=lambda row: row["n"]) == [
        {**each, "cents": prices[str(each["item"])]} for each in orders
    ]
    counted = run.summary["nodes"]["priced"]  # type: ignore[index]
    assert counted["unmatched"] == sum(each["item"] == "i0" for each in orders)
