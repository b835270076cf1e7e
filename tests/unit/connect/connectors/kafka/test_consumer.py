from __future__ import annotations

import pytest

from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.consumer import Consuming
from tests.fakes.kafka_library import FakeKafka, Log

SHARE, OTHER = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def consuming(monkeypatch: pytest.MonkeyPatch) -> Consuming:
    made = FakeKafka({SHARE: Log([b"1", b"2", b"3"]), OTHER: Log([b"x"])})
    for module in ("consumer", "group_offsets"):
        monkeypatch.setattr(f"millwheel.connect.connectors.kafka.{module}.library", lambda: made)
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
