"""What the tests of Kafka share: a broker for the tests of one process, producers, and readers of
what is committed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millwheel.connect.connectors.kafka.source import KafkaTopicSource, build_kafka_source
from millwheel.connect.sources.base import Chunk, Reader
from tests.servers.kafka import Broker

_ENDS_S = 60.0  # for transactions of the tests to end


def produce(
    broker: Broker, topic: str, messages: Iterable[tuple[int, Any, Any]], **more: Any
) -> None:
    """Write (partition, key, value), in this order; values that are no bytes become JSON."""
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    refused: list[Any] = []
    for partition, key, value in messages:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        if len(producer) > 50_000:
            producer.poll(1)
        producer.produce(
            topic, data, key, partition, on_delivery=lambda error, _: refused.append(error), **more
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not any(refused), refused


def committed(
    broker: Broker, topic: str, partitions: int
) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of all messages that a reader of committed messages sees, by partition and
    offset."""
    return [
        (message.key(), message.value())
        for message in committed_messages(broker, topic, partitions)
    ]


def committed_messages(broker: Broker, topic: str, partitions: int) -> list[Any]:
    """The messages themselves, up to the end of each partition as it is now. A commit is answered
    before it stands in the partitions, and until then they seem to end earlier; one that stays open
    fails the test."""
    found = []
    for number in range(partitions):
        consumer, everything = (
            _consumer(broker, "read_committed"),
            _consumer(broker, "read_uncommitted"),
        )
        end = _end_of(everything, TopicPartition(topic, number))
        everything.close()
        consumer.assign([TopicPartition(topic, number, 0)])
        until, ended = time.monotonic() + _ENDS_S, False
        while not ended:
            assert time.monotonic() < until, (
                f"a transaction stays open in partition {number} of {topic}"
            )
            # One that waits for a thousand messages waits for all of its time at the end of a
            # partition.
            for message in (consumer.poll(0.2), *consumer.consume(1000, 0)):
                if message is None:
                    continue
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    ended = message.offset() >= end
        consumer.close()
    return found


# A topic that was made just now may be unknown to a client for a moment.
_NOT_YET = ("NOT_LEADER_FOR_PARTITION", "_UNKNOWN_PARTITION")


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The end of a partition, whose broker may just have started and not lead it yet."""
    until = time.monotonic() + _ENDS_S
    while True:
        try:
            end: int = consumer.get_watermark_offsets(partition, timeout=_ENDS_S)[1]
            return end
        except KafkaException as ex:
            if ex.args[0].name() not in _NOT_YET or time.monotonic() > until:
                raise
            time.sleep(0.2)


def _consumer(broker: Broker, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
    )


def source(
    broker: Broker, topic: str, fields: Mapping[str, str] | None = None, **options: Any
) -> KafkaTopicSource:
    """A source of one topic."""
    return build_kafka_source(
        {"brokers": broker.address, "topics": [topic], **options}, None, fields
    )


def drained(
    reader: Reader, position: int = 0, rows: bool = True, enough: int = 1 << 30
) -> list[Chunk]:
    """Reads until the partition has ended, there is nothing for now, or ``enough`` records are
    read."""
    chunks: list[Any] = []
    while True:
        chunk: Any = reader.read(position, 7) if rows else reader.read_frame(position, 1 << 20)  # type: ignore[attr-defined]
        assert chunk is not None
        position = chunk.next_position
        if len(chunk) or chunk.rejects or chunk.finished or chunk.begins:
            chunks.append(chunk)
        done = chunk.finished or (rows and chunk.caught_up) or chunk.begins is not None
        if done or sum(len(each) for each in chunks) >= enough:
            return chunks


def values(chunks: list[Chunk]) -> list[Any]:
    """All values, in order."""
    return [value for chunk in chunks for value in chunk.values]


def positions(chunks: list[Chunk]) -> list[int]:
    """All positions, in order."""
    return [int(position) for chunk in chunks for position in chunk.positions]
