"""Messages that a filter passes on whole, through a real broker: in columns while all have the same
fields, one by one where some have others."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka import Broker
from tests.slow.kafka import produce
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

MESSAGES = 30_000
PIPELINE = """
pipeline: passed
streams:
  events:
    source: {kafka: {brokers: "${brokers}", topics: ["${topic}"], until: latest}}
    timestamp: {field: at, unit: ms}
    fields: {at: int, price: int}
computations:
  dear: {input: events, filter: price > 300, output: dear}
sinks:
  dear: {files: {path: "${output}", format: jsonl}}
"""


def event(number: int) -> dict[str, Any]:
    made = {"user": f"u{number % 70}", "price": number % 900, "at": 1_700_000_000_000 + number}
    if number % 10_000 == 5_000:
        made["tags"] = ["a", number]
    if number % 10_000 == 7_000:
        del made["user"]
    return made


def test_what_is_passed_on_has_all_of_its_fields(broker: Broker, tmp_path: Path) -> None:
    topic = broker.make_topic("passed", 2)
    events = [event(number) for number in range(MESSAGES)]
    produce(broker, topic, ((number % 2, None, each) for number, each in enumerate(events)))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    params = {"brokers": broker.address, "topic": topic, "output": str(tmp_path / "out")}
    run = Run(tmp_path / "p.yaml", tmp_path, params).start().wait(120)
    assert run.code == 0, run.said
    assert run.summary["dead_letters"] == 0, run.said
    lines = [
        line
        for path in (tmp_path / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    wanted = Counter(
        json.dumps(dict(sorted(each.items(), key=_place)), separators=(",", ":"))
        for each in events
        if each["price"] > 300
    )
    assert Counter(lines) == wanted
    assert any('"tags"' in line for line in lines)
    assert any('"user"' not in line for line in lines)


def _place(field: tuple[str, Any]) -> tuple[int, str]:
    """Declared fields come first, in the order of their declaration, the others by name."""
    declared = ("at", "price")
    return (declared.index(field[0]) if field[0] in declared else len(declared), field[0])
