"""A topic as a table, through a real broker: a message without a value deletes the row of its key,
from its time on."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka import Broker
from tests.slow.kafka import produce
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

BASE_MS, PHASES, MESSAGES, USERS = 1_700_000_000_000, 6, 400, 60
PIPELINE = """
pipeline: users
streams:
  users:
    source:
      kafka:
        brokers: "${brokers}"
        topics: ["${topic}"]
        until: latest
        key_field: id
        timestamp_field: since
        tombstones: delete
    timestamp: {field: since, unit: ms}
    table: id
  orders: {source: {files: {path: "${orders}", format: jsonl}}, timestamp: {field: at, unit: ms}}
computations:
  cities: {input: {users: {key: city}}, aggregate: {users: count}, output: cities}
  of: {input: {orders: {key: user}, users: {key: id}}, enrich: {with: users}, output: of}
sinks:
  users: {files: {path: "${output}/users", format: jsonl, mode: upsert, by: id}}
  cities: {files: {path: "${output}/cities", format: jsonl, mode: upsert, by: city}}
  of: {files: {path: "${output}/of", format: jsonl}}
"""
Row = dict[str, Any]


def rows(folder: Path) -> list[Row]:
    return [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def test_a_message_without_a_value_deletes_the_row_of_its_key(
    broker: Broker, tmp_path: Path
) -> None:
    topic, draw = broker.make_topic("users", 2), random.Random(11)
    table: dict[str, Row] = {}
    as_of: list[dict[str, Row]] = []
    for phase in range(PHASES):
        at = BASE_MS + phase * 1_000
        messages = []
        for number in range(MESSAGES):
            user = draw.randrange(USERS)
            name, deleted = f"u{user}", draw.random() < 0.4
            value = None if deleted else {"city": draw.choice("xyz"), "n": number}
            messages.append((user % 2, name.encode(), value))
            table.pop(name, None)
            if value is not None:
                table[name] = {**value, "id": name, "since": at}
        produce(broker, topic, messages, timestamp=at)
        as_of.append(dict(table))
    orders = [
        {"at": BASE_MS + draw.randrange(-500, PHASES * 1_000), "user": f"u{draw.randrange(USERS)}"}
        for _ in range(500)
    ]
    orders.sort(key=lambda row: row["at"])
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in orders))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    params = {
        "brokers": broker.address,
        "topic": topic,
        "orders": str(tmp_path / "orders.jsonl"),
        "output": str(tmp_path / "out"),
    }
    run = Run(tmp_path / "p.yaml", tmp_path, params).start().wait(120)
    assert run.code == 0, run.said
    assert run.summary["dead_letters"] == 0, run.said

    assert {row["id"]: row for row in rows(tmp_path / "out" / "users")} == table
    counted = {row["city"]: row["users"] for row in rows(tmp_path / "out" / "cities")}
    assert counted == Counter(row["city"] for row in table.values())

    def found(row: Row) -> Row | None:
        phase = (row["at"] - BASE_MS) // 1_000
        return as_of[phase].get(row["user"]) if phase >= 0 else None

    assert texts(rows(tmp_path / "out" / "of")) == texts(
        {**row, "users": found(row)} for row in orders
    )
    assert any(found(row) is None and row["at"] >= BASE_MS for row in orders)


def texts(some: Any) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in some)
