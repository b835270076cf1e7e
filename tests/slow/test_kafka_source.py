"""Topics as a source, read from a real broker."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from millwheel.connect.connectors.kafka.source import KafkaTopicSource
from millwheel.connect.sources.base import Partition
from millwheel.errors import ExhaustedError, SetupError
from tests.servers.kafka import Broker
from tests.slow.kafka import drained, positions, produce, source, values
from tests.slow.waits import until, until_without

pytestmark = pytest.mark.slow


def listed_by(read: KafkaTopicSource) -> list[Partition]:
    """Its partitions, once the broker has told."""
    return until_without(ExhaustedError, lambda: list(read.partitions()))


def numbered(count: int, partition: int = 0) -> list[tuple[int, Any, Any]]:
    return [(partition, str(number), {"n": number}) for number in range(count)]


def test_a_bounded_source_reads_what_was_there_and_ends(broker: Broker) -> None:
    topic = broker.make_topic("bounded", 2)
    produce(broker, topic, [*numbered(20, 0), *numbered(5, 1)])
    read = source(broker, topic, until="latest")
    partitions = read.partitions()
    assert [(each.name, each.version) for each in partitions] == [
        ("bounded/0", (0, 20)),
        ("bounded/1", (0, 5)),
    ]
    produce(broker, topic, numbered(3, 0))
    chunks = drained(read.open(partitions[0]))
    assert positions(chunks) == list(range(1, 21))
    assert values(chunks) == [{"n": number} for number in range(20)]
    assert chunks[-1].finished
    assert drained(read.open(Partition("bounded/0", (20, 20))))[-1].finished


def test_reading_goes_on_at_any_position(broker: Broker) -> None:
    topic = broker.make_topic("positions")
    produce(broker, topic, numbered(30))
    read = source(broker, topic, until="latest")
    (partition,) = read.partitions()
    for position in (0, 1, 13, 29, 30):
        assert positions(drained(read.open(partition), position)) == list(range(position + 1, 31))


def test_offsets_of_aborted_and_finished_transactions_are_passed_over(broker: Broker) -> None:
    topic = broker.make_topic("gaps")
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "gaps"})
    producer.init_transactions(30)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce(topic, b'{"n": %d}' % number)
        producer.flush(10)
        ends(30)
    read = source(broker, topic, until="latest")
    (partition,) = read.partitions()
    chunks = drained(read.open(partition))
    assert [value["n"] for value in values(chunks)] == [0, 2]
    assert positions(chunks) == [1, 5]
    assert chunks[-1].finished


@pytest.mark.parametrize("rows", [True, False])
def test_what_is_no_record_is_told_with_its_place(broker: Broker, rows: bool) -> None:
    topic = broker.make_topic(f"broken-{rows}")
    bad = [
        (0, None, b"{bad"),
        (0, None, None),
        (0, None, b"  "),
        (0, None, b""),
        (0, None, {"n": "x"}),
    ]
    produce(broker, topic, [*numbered(2), *bad, *numbered(1)])
    read = source(broker, topic, fields={"n": "int"}, until="latest")
    chunks = drained(read.open(read.partitions()[0]), rows=rows)
    assert positions(chunks) == [1, 2, 8]
    told = [(reject.position, reject.reason) for chunk in chunks for reject in chunk.rejects]
    assert [position for position, _ in told] == [3, 4, 5, 6, 7]
    assert all(
        f"topic broken-{rows}, partition 0, offset {position - 1}: " in reason
        for position, reason in told
    )
    assert "tombstone" in told[1][1]
    assert "empty" in told[2][1]
    assert "empty" in told[3][1]


def test_columns_hold_what_rows_hold(broker: Broker) -> None:
    topic = broker.make_topic("columns")
    produce(broker, topic, [(0, None, {"n": number, "t": f"é{number}"}) for number in range(500)])
    read = source(broker, topic, fields={"n": "int", "t": "str"}, until="latest")
    (partition,) = read.partitions()
    as_rows, as_columns = drained(read.open(partition)), drained(read.open(partition), rows=False)
    assert positions(as_rows) == positions(as_columns)
    assert values(as_rows) == [row for chunk in as_columns for row in chunk.frame.to_dicts()]  # type: ignore[attr-defined]


def test_where_latest_was_is_decided_once(broker: Broker) -> None:
    topic = broker.make_topic("latest")
    produce(broker, topic, numbered(4))
    read = source(broker, topic, start="latest")
    (partition,) = listed_by(read)
    reader = read.open(partition)
    (chunk,) = drained(reader)
    assert chunk.begins is not None
    produce(broker, topic, numbered(2))
    assert positions(drained(reader, enough=2)) == [5, 6]
    # The worker died before anything was committed but the decision; another one lists the topic
    # later.
    again = source(broker, topic, start="latest")
    other = again.open(listed_by(again)[0])
    other.resume([(0, b""), chunk.begins])
    assert positions(drained(other, enough=2)) == [5, 6]


def test_reading_begins_at_a_moment_or_where_a_group_stands(broker: Broker) -> None:
    topic = broker.make_topic("moments", **{"retention.ms": "-1"})
    produce(broker, topic, numbered(3), timestamp=1_700_000_000_000)
    produce(broker, topic, numbered(3), timestamp=1_790_000_000_000)
    since = source(broker, topic, until="latest", start={"time": "2025-01-01T00:00:00Z"})
    assert since.partitions()[0].version == (3, 6)
    from confluent_kafka import Consumer

    group = Consumer({"bootstrap.servers": broker.address, "group.id": "others"})
    group.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    group.close()
    assert source(broker, topic, until="latest", start={"group": "others"}).partitions()[
        0
    ].version == (2, 6)
    assert source(broker, topic, until="latest", start={"group": "none"}).partitions()[
        0
    ].version == (0, 6)


def test_what_retention_has_taken_stops_reading_or_is_passed_over(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.make_topic("retention")
    produce(broker, topic, numbered(10))
    admin = broker.admin()
    next(iter(admin.delete_records([TopicPartition(topic, 0, 6)]).values())).result(30)
    stops = source(broker, topic)
    reader = stops.open(listed_by(stops)[0])
    with pytest.raises(
        SetupError, match=r"topic retention, partition 0: Kafka has no offset 2 any more.*on_gap"
    ):
        drained(reader, 2, enough=4)
    goes_on = source(broker, topic, on_gap="continue")
    chunks = drained(goes_on.open(listed_by(goes_on)[0]), 2, enough=4)
    assert positions(chunks) == [7, 8, 9, 10]
    assert [chunk.next_position for chunk in chunks] == sorted(
        chunk.next_position for chunk in chunks
    )
    assert [reject.position for chunk in chunks for reject in chunk.rejects] == [6]
    assert "offsets 2 to 5 are gone" in caplog.text


def test_a_topic_that_was_made_anew_is_not_taken_for_the_former_one(broker: Broker) -> None:
    topic = broker.make_topic("anew")
    produce(broker, topic, numbered(10))
    read = source(broker, topic, on_gap="continue")
    reader = read.open(listed_by(read)[0])
    assert positions(drained(reader, enough=10)) == list(range(1, 11))
    broker.admin().delete_topics([topic])[topic].result(30)
    until_without(KafkaException, lambda: broker.make_topic("anew"))
    produce(broker, topic, numbered(3))
    with pytest.raises(
        SetupError, match=r"ends at offset 3, and was read to 10 already.*created again"
    ):
        until_it_fails(reader, 10)
    again = source(broker, topic, on_gap="continue")
    with pytest.raises(
        SetupError, match=r"ends at offset 3, and was read to 10 already.*created again"
    ):
        until_it_fails(again.open(listed_by(again)[0]), 10)


def until_it_fails(reader: Any, position: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert not len(reader.read(position, 100))
        time.sleep(0.01)


def test_a_partition_or_topic_that_appears_is_read_from_its_beginning(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millwheel.connect.connectors.kafka.partition_lists._EVERY_S", 0.2)
    topic = broker.make_topic("growing")
    produce(broker, topic, numbered(3))
    read = source(broker, "^grow.*", start="latest")
    assert [each.name for each in listed_by(read)] == ["growing/0"]
    broker.admin().create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    until(lambda: "growing/1" in [each.name for each in read.partitions()])
    produce(broker, topic, numbered(2, 1))
    broker.make_topic("growing-more")
    until(lambda: "growing-more/0" in [each.name for each in read.partitions()])
    reader = read.open(Partition("growing/1"))
    (decision,) = drained(reader)
    assert decision.begins is not None
    assert positions(drained(reader, enough=2)) == [1, 2]


def test_a_source_that_is_dropped_asks_no_more(broker: Broker) -> None:
    topic = broker.make_topic("dropped")
    read = source(broker, topic)
    listed_by(read)
    asking = [thread for thread in threading.enumerate() if thread.name == "kafka-listing"]
    assert asking
    del read
    gc.collect()
    for thread in asking:
        thread.join(30)
    assert not any(thread.is_alive() for thread in asking)


def test_keys_times_and_headers_become_fields(broker: Broker) -> None:
    topic = broker.make_topic("extras", **{"retention.ms": "-1"})
    produce(
        broker,
        topic,
        [(0, "k", {"n": 1})],
        headers=[("a", b"x"), ("a", b"y")],
        timestamp=1_700_000_000_123,
    )
    read = source(
        broker,
        topic,
        until="latest",
        key_field="key",
        timestamp_field="ts",
        headers_field="headers",
    )
    (chunk,) = drained(read.open(read.partitions()[0]))
    assert chunk.values == [{"n": 1, "key": "k", "ts": 1_700_000_000_123, "headers": {"a": "y"}}]


def test_text_and_bytes_are_values(broker: Broker) -> None:
    topic = broker.make_topic("plain")
    produce(broker, topic, [(0, None, b"caf\xc3\xa9"), (0, None, b"\xff")])
    text, raw = (source(broker, topic, until="latest", format=form) for form in ("text", "raw"))
    (chunk,) = drained(text.open(text.partitions()[0]))
    assert (chunk.values, len(chunk.rejects)) == ([{"value": "café"}], 1)
    (chunk,) = drained(raw.open(raw.partitions()[0]))
    assert chunk.values == [{"value": b"caf\xc3\xa9"}, {"value": b"\xff"}]


def test_a_topic_that_is_not_there_and_a_broker_that_does_not_answer_are_sentences(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match=r"has no topic 'nothing'"):
        source(broker, "nothing", until="latest").partitions()
    monkeypatch.setattr("millwheel.connect.connectors.kafka.client.ANSWER_S", 1.0)
    broker.address, right = "127.0.0.1:1", broker.address
    try:
        with pytest.raises(SetupError, match=r"no Kafka broker at 127.0.0.1:1 answers"):
            source(broker, "any", until="latest").partitions()
    finally:
        broker.address = right
