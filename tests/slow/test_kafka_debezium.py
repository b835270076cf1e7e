"""A table's changes through a real broker: the table itself, and an aggregation of it, at the
end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka import Broker
from tests.slow.kafka import produce
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

CHANGES, CUSTOMERS, COUNTRIES = 3_000, 200, ["de", "fr", "it"]


def changes(table: dict[int, dict[str, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """Random changes, as messages; ``table`` is what is there afterwards."""
    draw = random.Random(7)
    for number in range(CHANGES):
        key = draw.randrange(CUSTOMERS)
        before = table.pop(key, None)
        after = None
        if before is None or draw.random() < 0.7:
            after = table[key] = {"id": key, "country": draw.choice(COUNTRIES), "visits": number}
        op = "d" if after is None else "c" if before is None else "u"
        event: Any = {
            "before": before,
            "after": after,
            "op": op,
            "ts_ms": 1_700_000_000_000 + number,
        }
        partition, message_key = key % 2, json.dumps({"id": key}).encode()
        yield partition, message_key, {"schema": {}, "payload": event} if number % 3 else event
        if after is None:
            yield partition, message_key, None


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def test_a_table_is_mirrored_and_counted(broker: Broker, tmp_path: Path) -> None:
    topic, table = broker.make_topic("customers", 2), {}
    produce(broker, topic, changes(table))
    truncation = {"op": "t", "ts_ms": 1, "source": {"table": "customers"}}
    produce(broker, topic, [(0, None, truncation)])
    params = {"brokers": broker.address, "topic": topic, "output": str(tmp_path / "out")}
    run = Run(EXAMPLES / "formats" / "customers.yaml", tmp_path, params).start().wait(120)
    assert run.code == 0, run.said
    found = {row["id"]: row["country"] for row in rows(tmp_path / "out" / "customers")}
    assert found == {key: row["country"] for key, row in table.items()}
    counted = {row["country"]: row["customers"] for row in rows(tmp_path / "out" / "by_country")}
    assert counted == Counter(row["country"] for row in table.values())
    assert run.summary["dead_letters"] == 1, run.summary
