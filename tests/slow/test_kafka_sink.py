"""Topics as a sink: what a reader of committed messages of a real broker sees, whoever publishes
when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from millwheel import Retraction
from millwheel.connect.connectors.kafka.sink import KafkaWriter, build_kafka_sink
from millwheel.connect.connectors.kafka.transactions import Transactions
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.errors import FencedError, SetupError, UnavailableError
from tests.servers.kafka import Broker
from tests.slow.kafka import committed, committed_messages
from tests.slow.waits import until_without

pytestmark = pytest.mark.slow


class Shard:
    """One shard of a sink, its committables, and its owners one after the other."""

    def __init__(self, broker: Broker, topic: str, **options: Any) -> None:
        self.topic = broker.make_topic(topic)
        self._sink = build_kafka_sink(
            {"brokers": broker.address, "topic": topic, **options}, f"root-of-{topic}"
        )
        self._sink.check("")

    def owner(self, token: int) -> KafkaWriter:
        return self._sink.open("sink.out-0", token)


def committable(writer: KafkaWriter, number: int, count: int = 3) -> bytes:
    records = [SinkRecord("k", {"cut": number, "row": row}, 1_000_000) for row in range(count)]
    return writer.prepare(SinkBatch(number, f"1-{number}", records))


def until_it_works(publish: Callable[[bytes], None], receipt: bytes) -> None:
    """As the runtime does: again after 100 ms, for as long as it takes."""
    until_without(UnavailableError, lambda: publish(receipt))


def rows(broker: Broker, topic: str) -> list[tuple[int, int]]:
    return [
        (row["cut"], row["row"])
        for row in (json.loads(value or b"") for _, value in committed(broker, topic, 1))
    ]


def expected(cuts: int, count: int = 3) -> list[tuple[int, int]]:
    return [(cut, row) for cut in range(cuts) for row in range(count)]


def test_a_committable_that_is_published_again_appears_once(broker: Broker) -> None:
    shard = Shard(broker, "again")
    writer = shard.owner(1)
    receipts = [committable(writer, number) for number in range(3)]
    for receipt in (receipts[0], receipts[0], receipts[1], receipts[0], receipts[1], receipts[2]):
        until_it_works(writer.publish, receipt)
    successor = shard.owner(2)
    for receipt in receipts:
        until_it_works(successor.publish, receipt)
    assert rows(broker, "again") == expected(3)


CALLS = (
    "begin_transaction",
    "produce",
    "commit_transaction",
    "init_transactions",
    "_last_published",
)


@pytest.mark.parametrize("when", CALLS)
def test_a_zombie_between_any_two_calls_adds_nothing(
    broker: Broker, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner comes back just before ``when`` of its successor, and once more at the
    end."""
    topic = f"zombie-{when.strip('_')}"
    shard = Shard(broker, topic)
    old, new = shard.owner(1), shard.owner(2)
    receipts = [committable(old, number) for number in range(4)]
    until_it_works(old.publish, receipts[0])
    zombie_ends: list[Exception] = []

    def comes_back() -> None:
        try:
            old.publish(receipts[1])
        except (UnavailableError, FencedError) as ex:
            zombie_ends.append(ex)

    before(new._publisher, when, comes_back, monkeypatch)
    for receipt in receipts[1:]:
        until_it_works(new.publish, receipt)
    with pytest.raises(FencedError, match="newer publisher"):
        until_it_works(old.publish, committable(old, 4))
    assert rows(broker, topic) == expected(4)


def before(
    publisher: Any, name: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run ``act`` once, just before the first call of a method of the publisher or of its
    producer."""
    done: list[bool] = []

    def hooked(call: Callable[..., Any]) -> Callable[..., Any]:
        def calls(*words: Any, **named: Any) -> Any:
            if not done:
                done.append(True)
                act()
            return call(*words, **named)

        return calls

    if hasattr(Transactions, name):
        monkeypatch.setattr(publisher, name, hooked(getattr(publisher, name)))
        return
    made = publisher._kafka.Producer

    class Producer:
        def __init__(self, settings: Any) -> None:
            self._inner = made(settings)

        def __getattr__(self, word: str) -> Any:
            found = getattr(self._inner, word)
            return hooked(found) if word == name else found

    class Library:
        def __init__(self, library: Any) -> None:
            self._library = library
            self.Producer = Producer

        def __getattr__(self, word: str) -> Any:
            return getattr(self._library, word)

    monkeypatch.setattr(publisher, "_kafka", Library(publisher._kafka))


@pytest.mark.parametrize("dies_at", ["before", "after"])
def test_a_crash_around_the_commit_of_a_transaction_repeats_nothing(
    broker: Broker, dies_at: str
) -> None:
    topic = f"crash-{dies_at}"
    shard = Shard(broker, topic)
    dying = shard.owner(1)
    receipts = [committable(dying, number) for number in range(3)]
    until_it_works(dying.publish, receipts[0])
    producer: Any = dying._publisher._producer
    producer.begin_transaction()
    for row in range(3):
        producer.produce(topic, json.dumps({"cut": 1, "row": row}).encode())
    producer.produce(
        "millwheel-marks",
        key=f"root-of-{topic}/sink.out-0".encode(),
        value=b'{"number":1,"token":1}',
    )
    producer.flush(10)
    if dies_at == "after":
        producer.commit_transaction(-1)  # its reply is lost with the process
    successor = shard.owner(2)
    for receipt in receipts[1:]:
        until_it_works(successor.publish, receipt)
    assert rows(broker, topic) == expected(3)


def test_a_transaction_that_times_out_while_the_broker_hangs_loses_nothing(broker: Broker) -> None:
    shard = Shard(
        broker, "timeout", config={"transaction.timeout.ms": 1_500, "message.timeout.ms": 1_400}
    )
    writer = shard.owner(1)
    until_it_works(writer.publish, committable(writer, 0))
    broker.pause()
    waiting = threading.Thread(target=until_it_works, args=(writer.publish, committable(writer, 1)))
    waiting.start()
    time.sleep(4)
    broker.resume()
    waiting.join(120)
    assert not waiting.is_alive()
    until_it_works(writer.publish, committable(writer, 2))
    assert rows(broker, "timeout") == expected(3)


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(broker: Broker) -> None:
    shard = Shard(broker, "killed")
    writer = shard.owner(1)
    until_it_works(writer.publish, committable(writer, 0))
    broker.kill()
    waiting = threading.Thread(target=until_it_works, args=(writer.publish, committable(writer, 1)))
    waiting.start()
    time.sleep(1)
    broker.start()
    waiting.join(120)
    assert not waiting.is_alive()
    until_it_works(writer.publish, committable(writer, 2))
    assert rows(broker, "killed") == expected(3)


def test_at_least_once_needs_no_transactions(broker: Broker) -> None:
    shard = Shard(broker, "plainly", guarantee="at_least_once")
    writer = shard.owner(1)
    for number in range(3):
        until_it_works(writer.publish, committable(writer, number))
    assert rows(broker, "plainly") == expected(3)


def test_a_row_that_is_taken_back_becomes_a_tombstone(broker: Broker) -> None:
    shard = Shard(
        broker, "tombs", mode="upsert", key="id", headers={"from": "'here'"}, partition="0"
    )
    writer = shard.owner(1)
    records = [SinkRecord(1, {"id": 1, "n": 5}, 0), SinkRecord(1, Retraction({"id": 1, "n": 5}), 0)]
    until_it_works(writer.publish, writer.prepare(SinkBatch(0, "1-1", records)))
    messages = committed_messages(broker, "tombs", 1)
    assert [(message.key(), message.value()) for message in messages] == [
        (b"1", b'{"id":1,"n":5}'),
        (b"1", None),
    ]
    assert messages[0].headers() == [("from", b"here")]


def test_changes_are_rows_with_a_mark(broker: Broker) -> None:
    shard = Shard(broker, "changes", mode="changelog", mark="op")
    writer = shard.owner(1)
    records = [SinkRecord(1, {"n": 5}, 0), SinkRecord(1, Retraction({"n": 5}), 0)]
    until_it_works(writer.publish, writer.prepare(SinkBatch(0, "1-1", records)))
    assert [value for _, value in committed(broker, "changes", 1)] == [
        b'{"op":"+","n":5}',
        b'{"op":"-","n":5}',
    ]


def test_a_topic_that_is_not_there_is_a_sentence(broker: Broker) -> None:
    with pytest.raises(SetupError, match="has no topic 'nowhere'; create it"):
        build_kafka_sink({"brokers": broker.address, "topic": "nowhere"}, "r").check("r")


def test_a_topic_that_takes_less_than_the_sink_sends_is_a_sentence(broker: Broker) -> None:
    broker.make_topic("narrow", **{"max.message.bytes": "50000"})
    with pytest.raises(
        SetupError, match=r"up to 50000 bytes in topic 'narrow'.*message\.max\.bytes: 50000"
    ):
        build_kafka_sink({"brokers": broker.address, "topic": "narrow"}, "r").check("r")
    narrow = {"brokers": broker.address, "topic": "narrow", "config": {"message.max.bytes": 50_000}}
    sink = build_kafka_sink(narrow, "root-of-narrow")
    sink.check("r")
    writer = sink.open("sink.out-0", 1)
    records = [
        SinkRecord(1, {"cut": 0, "row": 0, "text": "x" * size}, 0) for size in (60_000, 49_000)
    ]
    until_it_works(writer.publish, writer.prepare(SinkBatch(0, "1-1", records)))
    assert [refused.record for refused in writer.take_refused()] == records[:1]
    assert rows(broker, "narrow") == [(0, 0)]


def test_a_compacted_topic_needs_the_key_that_the_sink_would_not_write(broker: Broker) -> None:
    broker.make_topic("by-key", **{"cleanup.policy": "compact,delete"})
    given = {"brokers": broker.address, "topic": "by-key"}
    with pytest.raises(
        SetupError,
        match=r"topic 'by-key'.* is compacted: each of its messages needs a key.*key: id",
    ):
        build_kafka_sink(given, "r").check("r")
    build_kafka_sink({**given, "key": "id"}, "r").check("r")


def test_rows_go_to_the_topic_that_they_name_all_in_one_transaction(broker: Broker) -> None:
    shard = Shard(broker, "to-de")
    broker.make_topic("to-fr")
    given = {"by": "'to-' + country", "among": ["to-de", "to-fr"]}
    sink = build_kafka_sink({"brokers": broker.address, "topic": given}, "root-of-countries")
    sink.check("r")
    writer = sink.open("sink.out-0", 1)
    records = [SinkRecord(1, {"country": country}, 0) for country in ("de", "fr", "it", "de")]
    receipt = writer.prepare(SinkBatch(0, "1-1", records))
    (refused,) = writer.take_refused()
    assert "gave 'to-it', which is not among to-de, to-fr" in refused.reason
    for _ in range(2):
        until_it_works(writer.publish, receipt)
    assert (len(committed(broker, shard.topic, 1)), len(committed(broker, "to-fr", 1))) == (2, 1)
    with pytest.raises(SetupError, match="has no topic 'to-nowhere'"):
        build_kafka_sink(
            {"brokers": broker.address, "topic": {"by": "c", "among": ["to-nowhere"]}}, "r"
        ).check("r")
