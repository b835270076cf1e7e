from __future__ import annotations

import pytest

from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.consumer import Consuming, GroupOffsets
from tests.fakes.kafka_library import Error, FakeKafka, Log

SHARE, OTHER = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka({SHARE: Log([b"1", b"2"]), OTHER: Log([])})
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer.library", lambda: made)
    return made


def offsets(kafka: FakeKafka) -> GroupOffsets:
    made = GroupOffsets(Complaints("b:1"))
    made.consumer = kafka.Consumer({"group.id": "lag"})
    return made


def test_positions_are_sent_together_and_once_a_second(kafka: FakeKafka) -> None:
    group = offsets(kafka)
    group.note(SHARE, 1)
    group.note(OTHER, 5)
    group.note(SHARE, 2)
    group.send(10.0)
    assert kafka.groups == {("lag", "clicks", 0): 2, ("lag", "clicks", 1): 5}
    group.note(SHARE, 3)
    group.send(10.5)
    assert len(kafka.commits) == 2
    group.send(11.0)
    assert kafka.commits[2:] == [("lag", "clicks", 0, 3)]
    group.send(20.0)
    assert len(kafka.commits) == 3, "nothing new, nothing sent"


def test_what_the_brokers_did_not_take_is_sent_again_unless_there_is_something_newer(
    kafka: FakeKafka,
) -> None:
    group = offsets(kafka)
    group.note(SHARE, 7)
    group.answered(
        Error("_TRANSPORT"), [kafka.TopicPartition(*SHARE, 4), kafka.TopicPartition(*OTHER, 5)]
    )
    group.send(1.0)
    assert kafka.groups == {("lag", "clicks", 0): 7, ("lag", "clicks", 1): 5}


@pytest.mark.parametrize("group", ["lag", None])
def test_the_end_of_a_partition_is_told_at_once_and_only_to_a_group_that_was_asked_for(
    kafka: FakeKafka, group: str | None
) -> None:
    consuming = Consuming("b:1", {}, "read_committed", Complaints("b:1"), group)
    consuming.committed(SHARE, 1)
    consuming.take(SHARE, 0, 10)
    consuming.committed(SHARE, 2, last=True)
    assert kafka.commits == ([("lag", "clicks", 0, 1), ("lag", "clicks", 0, 2)] if group else [])


SHARE, OTHER = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def consuming(monkeypatch: pytest.MonkeyPatch) -> Consuming:
    made = FakeKafka({SHARE: Log([b"1", b"2", b"3"]), OTHER: Log([b"x"])})
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer.library", lambda: made)
    return Consuming("b:1", {}, "read_committed", Complaints("b:1"))


def values(
    consuming: Consuming, share: tuple[str, int], offset: int, most: int = 10
) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    for _ in range(5):
        polled = consuming.take(share, offset, most - len(found))
        found += [message.value() for message in polled.messages]
        offset = polled.next_offset
        if len(found) == most:
            break
    return found, offset


def test_each_partition_gets_its_own_messages_in_order_whoever_is_asked_first(
    consuming: Consuming,
) -> None:
    assert values(consuming, SHARE, 0, 2) == ([b"1", b"2"], 2)
    assert values(consuming, OTHER, 0)[0] == [b"x"]
    assert values(consuming, SHARE, 2)[0] == [b"3"]


def test_to_ask_for_an_older_offset_reads_the_same_again(consuming: Consuming) -> None:
    first = values(consuming, SHARE, 0)
    assert values(consuming, SHARE, 0) == first
    assert values(consuming, SHARE, 1)[0] == [b"2", b"3"]


def test_a_partition_is_paused_while_too_many_bytes_of_it_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer._KEPT_BYTES", 1_000)
    made = FakeKafka({SHARE: Log([b"1"] * 50), OTHER: Log([b"x" * 30] * 50)})
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer.library", lambda: made)
    consuming = Consuming("b:1", {}, "read_committed", Complaints("b:1"))
    consuming.take(OTHER, 0, 0)
    assert len(consuming.take(SHARE, 0, 10).messages) == 10
    assert made.paused == {OTHER}, "fifty small messages are not too many, fifty large ones are"
    consuming.take(OTHER, 0, 20)
    assert made.paused == {OTHER}
    consuming.take(OTHER, 20, 20)
    assert not made.paused


@pytest.mark.parametrize("small_at", range(4))
def test_sizes_that_repeat_with_a_period_are_all_counted(
    monkeypatch: pytest.MonkeyPatch, small_at: int
) -> None:
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer._KEPT_BYTES", 1_000)
    sizes = [1 if n % 4 == small_at else 30 for n in range(64)]
    made = FakeKafka({SHARE: Log([b"1"]), OTHER: Log([b"x" * size for size in sizes])})
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer.library", lambda: made)
    consuming = Consuming("b:1", {}, "read_committed", Complaints("b:1"))
    consuming.take(OTHER, 0, 0)
    consuming.take(SHARE, 0, 10)
    assert made.paused == {OTHER}
    consuming.take(OTHER, 0, 40)
    assert made.paused == {OTHER}, "more than half of the bytes still wait"
    consuming.take(OTHER, 40, 10)
    assert not made.paused


def test_one_read_takes_what_the_library_gives_in_parts(
    monkeypatch: pytest.MonkeyPatch, consuming: Consuming
) -> None:
    consumer = consuming._consumer
    whole = consumer.consume

    def one_by_one(most: int, timeout: float) -> list[object]:
        if not consumer.waiting:
            consumer.waiting = whole(most, timeout)
        return [consumer.waiting.pop(0)] if consumer.waiting else []

    consumer.waiting = []
    monkeypatch.setattr(consumer, "consume", one_by_one)
    assert [message.value() for message in consuming.take(SHARE, 0, 10).messages] == [
        b"1",
        b"2",
        b"3",
    ]
