"""The contract of external sinks, on topics of a real broker."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from millwheel.connect.connectors.kafka import marks
from millwheel.connect.connectors.kafka.marks import Mark
from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.connect.sinks.base import BatchRefusedError, Sink, SinkBatch, SinkRecord
from millwheel.errors import UnavailableError
from millwheel.testing.contracts import ExternalSinkContract, Outside, SinkWorld, WatchedClient
from tests.servers.kafka import Broker
from tests.slow.kafka import committed

pytestmark = pytest.mark.slow
_numbers = itertools.count()
CALLS = ("init_transactions", "begin_transaction", "commit_transaction")


def _name() -> str:
    return f"contract-{next(_numbers)}"


class TopicWorld(SinkWorld):
    """A topic for each world, which takes less than the sink sends: as one whose limit was lowered
    during the run."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic = broker.make_topic(_name(), 1, **{"max.message.bytes": "1000"})

    def sink(self, outside: Outside, identity: str | None = None) -> Sink:
        options = {"brokers": self._broker.address, "topic": self._topic}
        made: Any = build_kafka_sink(
            options, f"root-of-{self._topic}" if identity is None else identity
        )
        plain = made.open

        def opened(shard: str, token: int) -> Any:
            writer = plain(shard, token)
            publisher: Any = writer._publisher
            publisher._kafka = _Library(publisher._kafka, outside)
            known = publisher._last_published
            publisher._last_published = lambda: outside.call("known", known)
            return writer

        made.open = opened
        return made  # type: ignore[no-any-return]

    def rows(self) -> list[Any]:
        return [json.loads(value or b"") for _, value in committed(self._broker, self._topic, 1)]

    def refused(self) -> tuple[Any, str]:
        return {"batch": 0, "row": "x" * 2_000}, "Message size too large"

    def lost(self) -> Exception:
        return KafkaException(KafkaError(KafkaError._TRANSPORT, "the connection broke"))


class _Library:
    """confluent_kafka with producers that are watched."""

    def __init__(self, library: Any, outside: Outside) -> None:
        self._library, self._outside = library, outside

    def Producer(self, settings: Any) -> Any:
        return WatchedClient(self._library.Producer(settings), self._outside, CALLS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


class TestATopic(ExternalSinkContract):
    every = 3  # each third call is another kind of call, after the next batch
    every_refused = 16
    # they wait for the broker, and librdkafka for half a second where a transaction was left open
    together = 6

    @pytest.fixture(autouse=True)
    def _ready(self, broker: Broker) -> None:
        self._broker = broker
        build_kafka_sink({"brokers": broker.address, "topic": broker.make_topic(_name())}).check(
            "r"
        )

    def world(self) -> SinkWorld:
        return TopicWorld(self._broker)

    def nameless(self, world: SinkWorld) -> Sink:
        return build_kafka_sink({"brokers": self._broker.address, "topic": "t"}, "")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_rows_that_the_brokers_refuse_are_told_with_their_words_and_the_others_are_written(
    broker: Broker, guarantee: str
) -> None:
    """A partition that does not exist, a key that a compacted topic asks for, and a row that is too
    large; none of them is known before the brokers are asked."""
    topic = broker.make_topic(
        _name(), 2, **{"cleanup.policy": "compact", "max.message.bytes": "1000"}
    )
    given = {
        "brokers": broker.address,
        "topic": topic,
        "key": "id",
        "partition": "at",
        "guarantee": guarantee,
    }
    writer = build_kafka_sink(given, f"root-of-{topic}").open("sink.out-0", 1)
    rows = [
        {"id": "a", "at": 0},
        {"id": "b", "at": 7},
        {"id": None, "at": 1},
        {"id": "c" * 2_000, "at": 1},
    ]
    rows += [{"id": "d", "at": number} for number in (0, 1)]
    records = [SinkRecord(("k", number), row, number) for number, row in enumerate(rows)]
    committable, letters = writer.prepare(SinkBatch(0, "1-0", records)), []
    for _ in range(20):
        try:
            writer.publish(committable)
        except UnavailableError:
            continue
        except BatchRefusedError as ex:
            committable, letters = ex.committable, [*letters, *ex.refused]
        else:
            break
    assert (
        sorted((letter.record for letter in letters), key=lambda record: record.timestamp)
        == records[1:4]
    )
    words = {letter.record.timestamp: letter.reason for letter in letters}
    assert (
        words[1] == f"Kafka refuses it for partition 7 of topic '{topic}': Local: Unknown partition"
    )
    assert "record" in words[2]
    assert words[3].endswith("Broker: Message size too large")
    written = [json.loads(value or b"") for _, value in committed(broker, topic, 2)]
    assert written == [rows[0], rows[4], rows[5]]


def test_the_open_transaction_of_another_shard_hides_no_mark(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies takes all its shards with it: one has committed its mark behind where
    another's transaction, still open, begins."""
    topic = broker.make_topic(_name(), 1)
    shared = {"bootstrap.servers": broker.address}
    own, other = (
        Producer({**shared, "transactional.id": f"{topic}-{name}"}) for name in ("own", "other")
    )
    for producer, name in ((other, b"other"), (own, b"own")):
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, key=name, value=marks.encode(Mark(7, 1)), partition=0)
        producer.flush(60)
    own.commit_transaction(60)
    given = {**shared, "group.id": topic, "enable.partition.eof": True}
    committed, everything = (
        Consumer({**given, "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    )
    monkeypatch.setattr(marks, "_SILENCE_S", 0.6)
    with pytest.raises(UnavailableError, match="and then nothing came"):
        marks.last_mark(committed, marks.MarksEnd(topic), "own", everything)
    other.abort_transaction(60)
    assert eventual(
        lambda: marks.last_mark(committed, marks.MarksEnd(topic), "own", everything)
    ) == Mark(7, 1)
    assert marks.last_mark(committed, marks.MarksEnd(topic), "other", everything) is None
    committed.close()
    everything.close()


def eventual(look: Callable[[], Any]) -> Any:
    """What a look finds once the brokers have written the markers of transactions."""
    for _ in range(20):
        with contextlib.suppress(UnavailableError):
            return look()
    raise AssertionError("nothing was found")
