from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.connectors.kafka import marks
from millwheel.connect.connectors.kafka.marks import Mark, MarksEnd, _decoded, encode, last_mark
from millwheel.errors import CorruptionError, UnavailableError


class Partition:
    def __init__(self, topic: str, partition: int, offset: int = 0) -> None:
        self.offset = offset


class Kafka:
    TopicPartition = Partition

    class KafkaException(Exception):
        pass


class Message:
    def __init__(self, offset: int, key: str, mark: Mark) -> None:
        self._offset, self._key, self._value = offset, key.encode(), encode(mark)

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


class Topic:
    """A compacted topic: some offsets hold a mark, the others are gone or markers of
    transactions."""

    def __init__(self, end: int, messages: list[Message]) -> None:
        self.end, self.messages, self.at = end, messages, 0
        self.looks: list[int] = []

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        return 0, self.end

    def assign(self, partitions: list[Partition]) -> None:
        self.at = partitions[0].offset
        self.looks.append(self.at)

    def unassign(self) -> None:
        pass

    def poll(self, timeout: float) -> None:
        return None

    def consume(self, most: int, timeout: float) -> list[Message]:
        found, self.at = [each for each in self.messages if each.offset() >= self.at], self.end
        return found

    def position(self, partitions: Any) -> list[Partition]:
        return [Partition("t", 0, self.at)]


def mark_in(topic: Topic, name: str) -> Mark | None:
    return last_mark(topic, MarksEnd("t"), name, topic)


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "library", lambda: Kafka)


def test_the_newest_mark_of_the_shard_is_found_wherever_it_lies() -> None:
    messages = [
        Message(3, "s-0", Mark(1, 1)),
        Message(5, "s-1", Mark(9, 9)),
        Message(7, "s-0", Mark(2, 1)),
        Message(5_000, "s-1", Mark(10, 9)),
    ]
    topic = Topic(10_000, messages)
    assert mark_in(topic, "s-0") == Mark(2, 1)
    assert mark_in(topic, "s-1") == Mark(10, 9)
    assert mark_in(topic, "s-2") is None
    assert topic.looks[0] == 9_800, "near the end first"


class SlowTopic(Topic):
    """Tells 500 offsets at a time, as a broker does."""

    def consume(self, most: int, timeout: float) -> list[Message]:
        start, self.at = self.at, min(self.at + 500, self.end)
        return [each for each in self.messages if start <= each.offset() < self.at]


def test_a_mark_is_found_however_far_back_it_lies() -> None:
    topic = SlowTopic(1_300_000, [Message(17, "s-0", Mark(4, 2))])
    assert mark_in(topic, "s-0") == Mark(4, 2)
    assert mark_in(topic, "s-9") is None


def test_a_topic_from_which_nothing_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Topic):
        def consume(self, most: int, timeout: float) -> list[Message]:
            return []

    monkeypatch.setattr(marks, "_SILENCE_S", 0.01)
    with pytest.raises(UnavailableError, match="read to offset 800 of 1000, and then nothing came"):
        mark_in(Silent(1_000, []), "s-0")


def test_nothing_is_read_before_the_offset_behind_which_the_mark_must_lie() -> None:
    topic = Topic(1_000_000, [Message(17, "s-0", Mark(4, 2)), Message(999_990, "s-0", Mark(5, 2))])
    assert last_mark(topic, MarksEnd("t"), "s-0", topic, 999_000) == Mark(5, 2)
    assert last_mark(topic, MarksEnd("t"), "s-0", topic, 999_995) is None
    assert min(topic.looks) >= 999_000
    assert last_mark(topic, MarksEnd("t"), "s-0", topic, 2_000_000) == Mark(5, 2), (
        "the topic was made anew"
    )


def test_an_empty_topic_has_no_mark() -> None:
    assert mark_in(Topic(0, []), "s-0") is None


@given(st.integers(-1, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_mark_comes_back_from_a_message(number: int, token: int) -> None:
    assert _decoded(encode(Mark(number, token)), "t") == Mark(number, token)


def test_what_is_no_mark_is_damage_with_its_topic() -> None:
    with pytest.raises(CorruptionError, match="topic marks holds something that is not a mark"):
        _decoded(b"hello", "marks")
