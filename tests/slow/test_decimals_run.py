"""Decimals from a real PostgreSQL and a real Kafka, and back to them, with all their digits."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.servers.kafka import Broker
from tests.servers.postgres import Server
from tests.slow.kafka import committed, produce
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

_TABLES = """
pipeline: numerics
streams:
  orders:
    source: {postgres: {dsn: "${pg}", table: priced_orders, order_by: id}}
    timestamp: at
    fields: {id: int, at: timestamp, sku: str, price: "decimal(18, 2)"}
computations:
  rated:
    input: {orders: {key: sku}}
    enrich:
      lookup:
        postgres: {dsn: "${pg}", query: "select level, rate::text from price_levels", by: level}
      by: [price % 1000]
      as: of
    output: rated
  taxed:
    input: rated
    map: {sku: sku, price: price, tax: "price * cast(of.rate, 'decimal(6, 4)')"}
    output: taxed
  sums: {input: {taxed: {key: sku}}, window: global,
         aggregate: {total: {sum: price}, tax: {sum: tax}, n: count}, output: sums}
sinks:
  sums: {postgres: {dsn: "${pg}", table: price_sums}}
"""


def test_numerics_of_tables_keep_all_digits(server: Server, tmp_path: Path) -> None:
    server.sql(
        "create table priced_orders (id bigint primary key, at timestamptz, sku text, price"
        " numeric(18, 2)); create table price_levels (level numeric primary key, rate numeric(6,"
        " 4)); create table price_sums (sku text, total numeric, tax numeric(30, 6), n bigint)"
    )
    server.sql(
        "insert into priced_orders select n, '2026-01-01T00:00:00Z'::timestamptz + n * interval '1"
        " s', 's' || n % 3, 90071992547.93 + n * 0.1 from generate_series(1, 300) n"
    )
    server.sql("insert into price_levels select distinct price % 1000, 0.1901 from priced_orders")
    file = tmp_path / "numerics.yaml"
    file.write_text(_TABLES)
    run = Run(file, tmp_path, {"pg": server.dsn}).start()
    run.wait(120)
    assert run.code == 0, run.said
    expected = server.sql(
        "select sku, sum(price), sum(price * 0.1901), count(*) from priced_orders group by sku"
        " order by sku"
    )
    assert server.sql("select sku, total, tax, n from price_sums order by sku") == expected


_TOPICS = """
pipeline: topics
streams:
  orders:
    source: {kafka: {brokers: "${brokers}", topics: ["${changes}"], until: latest,
             format: {debezium: {key: id}}}}
    timestamp: {field: at, unit: ms}
    watermark: {max_delay: 1m}
    fields: {id: int, at: int, price: "decimal(18, 4)"}
computations:
  sums: {input: {orders: {key: all}}, aggregate: {total: {sum: price}, n: count}, output: sums}
sinks:
  sums: {kafka: {brokers: "${brokers}", topic: "${out}", mode: changelog}}
"""


def test_changes_in_a_topic_are_summed_exactly(broker: Broker, tmp_path: Path) -> None:
    changes, out = broker.make_topic("prices"), broker.make_topic("price-sums")
    prices = ["90071992547.4093", "-0.0001", "0.1"]

    def row(number: int, price: str) -> dict[str, object]:
        return {"id": number, "at": 1_700_000_000_000 + number, "price": price}

    events = [
        {"op": "c", "before": None, "after": row(number, price)}
        for number, price in enumerate(prices)
    ]
    events.append({"op": "u", "before": row(2, "0.1"), "after": row(2, "0.2")})
    events.append({"op": "d", "before": row(1, "-0.0001"), "after": None})
    produce(broker, changes, [(0, None, event) for event in events])
    file = tmp_path / "topics.yaml"
    file.write_text(_TOPICS)
    run = Run(file, tmp_path, {"brokers": broker.address, "changes": changes, "out": out}).start()
    run.wait(120)
    assert run.code == 0, run.said
    last: dict[str, object] = {}
    for _, value in committed(broker, out, 1):
        assert value is not None
        change = json.loads(value, parse_float=Decimal)
        if change["change"] == "+":
            last = change
    assert (last["total"], last["n"]) == (Decimal("90071992547.6093"), 2)
