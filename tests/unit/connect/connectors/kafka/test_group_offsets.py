"""What a consumer group learns of our commits."""

from __future__ import annotations

import pytest

from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.consumer import Consuming
from millwheel.connect.connectors.kafka.group_offsets import GroupOffsets
from tests.fakes.kafka_library import Error, FakeKafka, Log

SHARE, OTHER = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka({SHARE: Log([b"1", b"2"]), OTHER: Log([])})
    for module in ("consumer", "group_offsets"):
        monkeypatch.setattr(f"millwheel.connect.connectors.kafka.{module}.library", lambda: made)
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
