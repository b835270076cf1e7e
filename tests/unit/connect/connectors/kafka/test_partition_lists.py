from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.connect.connectors.kafka import partition_lists
from millwheel.connect.connectors.kafka.partition_lists import Listing, Span
from millwheel.errors import SetupError


class Partition:
    def __init__(self, topic: str, partition: int, offset: int = 0) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


class Consumer:
    """A topic ``a`` with one partition of offsets 10 to 50; a group has committed ``group``."""

    group = -1001
    times = -1

    def __init__(self, settings: Any) -> None:
        pass

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        return 10, 50

    def offsets_for_times(self, at: Any, timeout: float) -> list[Partition]:
        return [Partition("a", 0, self.times)]

    def committed(self, at: Any, timeout: float) -> list[Partition]:
        return [Partition("a", 0, self.group)]


TOPIC = SimpleNamespace(partitions={0: None, 1: None}, error=None)


def made(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Listing:
    kafka = SimpleNamespace(Consumer=Consumer, TopicPartition=Partition, KafkaException=ValueError)
    monkeypatch.setattr(partition_lists, "library", lambda: kafka)
    topics = {"a": TOPIC, "b": TOPIC, "__consumer_offsets": TOPIC}
    monkeypatch.setattr(partition_lists, "existing_topics", lambda *given: topics)
    options: Any = {
        "brokers": "b:1",
        "config": {},
        "isolation": "read_committed",
        "start": "earliest",
        "start_group": lambda: None,
        "start_ms": lambda: None,
        "pattern": lambda: None,
        "names": lambda: ["a"],
        **more,
    }
    return Listing(SimpleNamespace(**options))  # type: ignore[arg-type]


def test_topics_are_those_named_or_those_that_fit_but_never_kafkas_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert made(monkeypatch).shares() == [("a", 0), ("a", 1)]
    assert made(monkeypatch, pattern=lambda: re.compile("")).shares() == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    with pytest.raises(
        SetupError, match=r"has no topic 'c'; create it, or write one that exists \(a, b\)"
    ):
        made(monkeypatch, names=lambda: ["c"]).shares()


@pytest.mark.parametrize(
    ("more", "found", "start"),
    [
        ({}, {}, 10),
        ({"start": "latest"}, {}, 50),
        ({"start_ms": lambda: 5}, {"times": 30}, 30),
        ({"start_ms": lambda: 5}, {"times": -1}, 50),
        ({"start_group": lambda: "g"}, {"group": 20}, 20),
        ({"start_group": lambda: "g"}, {"group": -1001}, 10),
        ({"start_group": lambda: "g"}, {"group": 5}, 10),
        ({"start_group": lambda: "g"}, {"group": 99}, 50),
    ],
)
def test_a_partition_begins_where_it_is_asked_to_and_within_what_there_is(
    monkeypatch: pytest.MonkeyPatch, more: Any, found: dict[str, int], start: int
) -> None:
    for name, value in found.items():
        monkeypatch.setattr(Consumer, name, value)
    assert made(monkeypatch, **more).spans([("a", 0)]) == {("a", 0): Span(start, 50)}
