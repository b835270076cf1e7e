"""Topics as a source, before and behind the questions to brokers."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.connect.connectors.kafka import source as module
from millwheel.connect.connectors.kafka.partition_lists import Span
from millwheel.connect.connectors.kafka.reader import KafkaReader
from millwheel.connect.connectors.kafka.source import KafkaTopicSource, build_kafka_source
from millwheel.connect.formats.avro.messages import AvroEncoder
from millwheel.connect.sources.base import Partition
from millwheel.connect.sources.changes import EACH, ChangesReader
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.errors import ExhaustedError
from millwheel.testing import PipelineHarness
from tests.fakes.kafka_library import FakeKafka, Log

PARTITION = Partition("clicks/0")


class Topics:
    """The partitions that brokers know, as both kinds of listing tell them."""

    def __init__(self, spans: dict[tuple[str, int], Span] | None) -> None:
        self.spans_now = spans
        self.closed = 0

    def latest(self) -> dict[tuple[str, int], Span] | None:
        return self.spans_now

    def wait(self, seconds: float) -> None: ...

    def shares(self) -> list[tuple[str, int]]:
        return sorted(self.spans_now or {})

    def spans(self, shares: list[tuple[str, int]]) -> dict[tuple[str, int], Span]:
        return {share: (self.spans_now or {})[share] for share in shares}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics({("clicks", 1): Span(7, 9), ("clicks", 0): Span(2, 5)})
    kafka = FakeKafka({("clicks", 0): Log([b'{"n":%d}' % number for number in range(5)])})
    monkeypatch.setattr(module, "Listing", lambda options: made)
    monkeypatch.setattr(module, "ListingThread", lambda options: made)
    for name in ("source", "consumer"):
        monkeypatch.setattr(f"millwheel.connect.connectors.kafka.{name}.library", lambda: kafka)
    return made


def source(
    schema: type | None = None, fields: dict[str, str] | None = None, **more: Any
) -> KafkaTopicSource:
    return build_kafka_source({"brokers": "b:1", "topics": ["clicks"], **more}, schema, fields)


def numbers(made: KafkaTopicSource, partition: Partition) -> list[int]:
    """What the first reads of a partition give."""
    reader, position, found = made.open(partition), 0, []
    for _ in range(3):
        chunk = reader.read(position, 10)
        position = chunk.next_position
        found += [value["n"] for value in chunk.values]
    return found


def test_each_partition_of_a_topic_is_one_of_ours(topics: Topics) -> None:
    assert list(source().partitions()) == [Partition("clicks/0"), Partition("clicks/1")]


def test_a_source_that_ends_keeps_where_each_partition_began_and_ended(topics: Topics) -> None:
    made = source(until="latest")
    assert (source().bounded, made.bounded) == (False, True)
    found = [Partition("clicks/0", (2, 5)), Partition("clicks/1", (7, 9))]
    assert list(made.partitions()) == found == list(source().ends())
    assert topics.closed == 2


def test_while_the_brokers_have_not_answered_there_is_nothing_to_read_yet(topics: Topics) -> None:
    topics.spans_now = None
    with pytest.raises(ExhaustedError, match="Kafka at b:1 has not listed its partitions yet"):
        source().partitions()


def test_reading_begins_where_the_options_say_or_where_the_root_remembers(topics: Topics) -> None:
    assert numbers(source(), PARTITION) == [0, 1, 2, 3, 4]
    assert numbers(source(start="latest"), PARTITION) == [2, 3, 4], "the span says where"
    assert numbers(source(start="latest"), Partition("clicks/0", (4, 5))) == [4], (
        "what the root kept counts"
    )
    assert numbers(source(until="latest"), Partition("clicks/0", (1, 3))) == [1, 2]


def test_declared_fields_come_as_columns_unless_something_is_added_to_each_record(
    topics: Topics,
) -> None:
    plain, columns = source()._forms(), source(fields={"n": "int"})._forms()
    assert plain.columns is None
    assert columns.columns is not None
    assert source(fields={"n": "int"}, key_field="k")._forms().columns is None


def test_what_is_applied_is_told_to_the_group_as_offsets(topics: Topics) -> None:
    told: list[Any] = []
    for format_ in ("json", "debezium"):
        made: Any = source(group="g", format=format_)
        made._consuming = SimpleNamespace(committed=lambda *given: told.append(given))
        made.committed(Partition("clicks/0", (0, 3)), 2 * (EACH if format_ == "debezium" else 1))
        made.committed(Partition("clicks/0", (0, 3)), 3 * (EACH if format_ == "debezium" else 1))
    assert told == [(("clicks", 0), 2, False), (("clicks", 0), 3, True)] * 2
    quiet: Any = source()
    quiet.committed(PARTITION, 2)
    assert quiet._consuming is None, "nobody asked to be told"


def test_changes_are_read_as_retractions_and_values(topics: Topics) -> None:
    assert isinstance(source(format="debezium").open(PARTITION), ChangesReader)
    assert not isinstance(source().open(PARTITION), ChangesReader)
    with pytest.raises(
        ValueError,
        match="debezium gives maps and retractions of maps; declare fields, not a schema",
    ):
        source(schema=dict, format="debezium")


UNDECLARED = """
pipeline: undeclared
streams:
  clicks:
    source: {{kafka: {{brokers: "b:1", topics: [clicks], until: latest,
      format: {{avro: {{schema: {schema}}}}}}}}}
    timestamp: {{field: ts, unit: us}}
computations:
  costs:
    input: {{clicks: {{key: ad}}}}
    window: {{tumbling: 1s}}
    aggregate: {{cost: {{sum: cost}}, n: count}}
    output: out
sinks: {{out: {{stdout: {{}}}}}}
"""
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "ad", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "cost", "type": ["null", "double"]},
    ],
}


def undeclared_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: bool
) -> tuple[list[str], int]:
    """The results over a topic in Avro whose fields nobody declares, and how many reads gave
    columns."""
    encoder = AvroEncoder(CLICK)
    clicks = [
        {"ad": f"a{n % 3}", "ts": n * 20_000, "cost": None if n == 200 else n / 4}
        for n in range(400)
    ]
    kafka = FakeKafka({("clicks", 0): Log([encoder.encode(click) for click in clicks])})
    made = Topics({("clicks", 0): Span(0, 400)})
    (tmp_path / "click.avsc").write_text(json.dumps(CLICK))
    (tmp_path / "p.yaml").write_text(UNDECLARED.format(schema="click.avsc"))
    read: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "Listing", lambda options: made)
        for name in ("source", "consumer"):
            patch.setattr(f"millwheel.connect.connectors.kafka.{name}.library", lambda: kafka)
        patch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=20))
        by_bytes, read_frame = KafkaReader.read_frame, SourceOperator._read_frame
        patch.setattr(
            KafkaReader, "read_frame", lambda self, position, most: by_bytes(self, position, 500)
        )
        patch.setattr(
            SourceOperator, "_read_frame", lambda *args: read.append(read_frame(*args)) or read[-1]
        )
        if rows:
            patch.setattr(Assembly, "_column_plan", lambda self, computation: None)
        with PipelineHarness(str(tmp_path / "p.yaml"), run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            return sorted(map(json.dumps, harness.read("out"))), sum(read)


def test_a_topic_in_avro_of_undeclared_fields_goes_by_columns_with_the_results_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, columns = undeclared_costs(tmp_path, monkeypatch, rows=False)
    assert columns > 3
    rows, none = undeclared_costs(tmp_path, monkeypatch, rows=True)
    assert (found, none) == (rows, 0)
    assert len(rows) > 10
