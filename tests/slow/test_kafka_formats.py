"""Avro and Protobuf through a real broker and a real schema registry."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.connect.connectors.kafka.source import build_kafka_source
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.errors import ExhaustedError, SetupError, UnavailableError
from tests.fakes.protobuf import FULL, write_descriptors
from tests.servers.kafka import Broker
from tests.servers.registry import RegistryServer, need_registry
from tests.slow.kafka import drained, produce, source, values

pytestmark = pytest.mark.slow

OLD: dict[str, Any] = {
    "type": "record",
    "name": "shop.Click",
    "fields": [{"name": "ad", "type": "long"}],
}
NEW = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "page", "type": ["null", "string"], "default": None}],
}
OTHER = {**OLD, "fields": [{"name": "user", "type": "string"}]}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    need_registry()
    made = RegistryServer(tmp_path_factory.mktemp("registry"))
    made.start()
    yield made
    made.kill()


def send(
    broker: Broker, topic: str, form: Any, rows: list[Any], folder: Path = Path()
) -> list[str]:
    """Write rows by the sink, as a run would; what it refuses."""
    options = {
        "brokers": broker.address,
        "topic": topic,
        "format": form,
        "guarantee": "at_least_once",
    }
    sink = build_kafka_sink(options, "root", str(folder))
    sink.check("root")
    writer = sink.open("s-0", 1)
    writer.publish(writer.prepare(SinkBatch(0, "1-0", [SinkRecord("k", row, 0) for row in rows])))
    refused = [each.reason for each in writer.take_refused()]
    writer.close()
    return refused


def read(broker: Broker, topic: str, form: Any) -> tuple[list[Any], list[str]]:
    found = build_kafka_source(
        {"brokers": broker.address, "topics": [topic], "until": "latest", "format": form}
    )
    partition, until = found.partitions()[0], time.monotonic() + 30
    while True:
        try:
            chunks = drained(found.open(partition))
            return values(chunks), [reject.reason for chunk in chunks for reject in chunk.rejects]
        except ExhaustedError:  # a slow registry: the runtime comes back, too
            assert time.monotonic() < until


def test_readers_take_what_older_and_newer_writers_wrote(
    broker: Broker, registry: RegistryServer
) -> None:
    topic = broker.make_topic("avro")
    form = {"schema": OLD, "registry": {"url": registry.url}}
    assert send(broker, topic, {"avro": form}, [{"ad": 1}, {"ad": "x"}]) == [
        "field 'ad' is str 'x', but the Avro schema requires a long"
    ]
    assert not send(broker, topic, {"avro": {**form, "schema": NEW}}, [{"ad": 2, "page": "/"}])
    produce(broker, topic, [(0, None, b"\0\0\1\0\0rest"), (0, None, b"{}")])
    found, wrong = read(broker, topic, {"avro": {"schema": NEW, "registry": {"url": registry.url}}})
    assert found == [{"ad": 1, "page": None}, {"ad": 2, "page": "/"}]
    assert [reason.partition(": ")[0] for reason in wrong] == [
        f"topic avro, partition 0, offset {offset}" for offset in (2, 3)
    ]
    assert "has no schema with the id 65536" in wrong[0]
    assert "does not begin with the id" in wrong[1]


def test_a_schema_that_is_not_compatible_is_refused_before_anything_starts(
    broker: Broker, registry: RegistryServer
) -> None:
    topic = broker.make_topic("strict")
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema("strict-value", Schema(json.dumps(OLD), "AVRO"))
        client.set_compatibility("strict-value", "BACKWARD")
    with pytest.raises(
        SetupError, match=r"refuses the schema for the subject 'strict-value': it is not compatible"
    ):
        send(broker, topic, {"avro": {"schema": OTHER, "registry": {"url": registry.url}}}, [])
    looks_up = {"schema": NEW, "registry": {"url": registry.url, "auto_register": False}}
    with pytest.raises(SetupError, match="has no such schema under the subject 'strict-value'"):
        send(broker, topic, {"avro": looks_up}, [])


def test_protobuf_messages_tell_their_schema(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    topic = broker.make_topic("protobuf")
    form: dict[str, Any] = {
        "message": "shop.Click",
        "descriptor": str(tmp_path / write_descriptors(tmp_path)),
    }
    form["registry"] = {"url": registry.url}
    assert not send(broker, topic, {"protobuf": form}, [FULL], tmp_path)
    assert read(broker, topic, {"protobuf": form}) == ([FULL], [])


def test_while_the_registry_is_away_nothing_is_lost(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    topic = broker.make_topic("away")
    other = RegistryServer(tmp_path)
    form = {"avro": {"schema": OLD, "registry": {"url": other.url}}}
    options = {
        "brokers": broker.address,
        "topic": topic,
        "format": form,
        "guarantee": "at_least_once",
    }
    sink = build_kafka_sink(options, "root")
    with pytest.raises(SetupError, match="does not answer"):
        sink.check("root")
    writer = sink.open("s-0", 1)
    committable = writer.prepare(SinkBatch(0, "1-0", [SinkRecord("k", {"ad": 1}, 0)]))
    with pytest.raises(UnavailableError, match=r"the schema registry at .* does not answer"):
        writer.publish(committable)
    assert source(broker, topic, until="latest").partitions()[0].version == (0, 0)
    send(broker, topic, {"avro": {"schema": OLD, "registry": {"url": registry.url}}}, [{"ad": 1}])
    waiting = source(broker, topic, until="latest", format=form)
    with pytest.raises(ExhaustedError, match=r"the schema registry at .* does not answer"):
        drained(waiting.open(waiting.partitions()[0]), enough=1)
