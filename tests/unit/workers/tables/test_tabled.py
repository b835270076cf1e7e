"""A table behind a source of change events, from messages of Kafka to what consumers see, whoever dies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from millwheel import as_retraction
from millwheel.connectors.kafka import source as module
from millwheel.connectors.kafka.listing import Span
from millwheel.testing import PipelineHarness
from tests.fakes.change_streams import change_stream
from tests.fakes.kafka_library import FakeKafka, Log
from tests.unit.connectors.kafka.test_source import Topics
from tests.unit.core.tables.test_changes import plain

PIPELINE = """
pipeline: people
streams:
  changes:
    source: {kafka: {brokers: "b:1", topics: [clicks], until: latest, format: {debezium: %s}}}
    timestamp: {field: changed_ms, unit: ms}
    id: changed_ms
    watermark: {max_delay: 1h, max_future: never}
computations:
  by_country:
    input: {changes: {key: country}}
    window: global
    aggregate: {n: count}
    output: by_country
sinks:
  changes: {stdout: {mode: changelog}}
  by_country: {stdout: {}}
"""


@pytest.mark.parametrize("seed", range(1001, 1007))
def test_whoever_dies_the_table_and_counts_over_it_are_those_of_the_database(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = change_stream(seed)
    logs = [Log([], 0), Log([], 0)]
    for key, value in stream.messages:
        log = logs[hash_of(key, value) % 2]
        if key is not None:
            log.keys[len(log.values)] = key
        log.values.append(value)
    kafka = FakeKafka({("clicks", number): log for number, log in enumerate(logs)})
    made = Topics({("clicks", number): Span(0, len(log.values)) for number, log in enumerate(logs)})
    monkeypatch.setattr(module, "Listing", lambda options: made)
    for name in ("source", "consuming", "group_offsets"):
        monkeypatch.setattr(f"millwheel.connectors.kafka.{name}.library", lambda: kafka)
    (tmp_path / "p.yaml").write_text(PIPELINE % json.dumps(stream.form))
    with PipelineHarness(str(tmp_path / "p.yaml"), run_sources=True, crash_every=7 + seed % 40) as harness:
        harness.advance_processing_time(10**9)
        counted = {row["country"]: row["n"] for row in harness.read("by_country")}
        rows: Counter[str] = Counter()
        for value in harness.read("changes"):
            back = as_retraction(value)
            rows[plain(value if back is None else back.value)] += 1 if back is None else -1
    assert rows == Counter(map(plain, stream.rows.values())) + Counter()
    assert {country: n for country, n in counted.items() if n} == Counter(
        row["country"] for row in stream.rows.values()
    )


def hash_of(key: bytes | None, value: bytes) -> int:
    """A connector writes all events of a row into one partition, also where its rows have no key."""
    event = json.loads(value)
    return int((event["after"] or event["before"])["id"])
