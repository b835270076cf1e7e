from __future__ import annotations

import pytest

from millwheel.connectors.kafka.client import Complaints
from millwheel.connectors.kafka.consuming import Consuming
from tests.fakes.kafka_library import FakeKafka, Log

SHARE, OTHER = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def consuming(monkeypatch: pytest.MonkeyPatch) -> Consuming:
    made = FakeKafka({SHARE: Log([b"1", b"2", b"3"]), OTHER: Log([b"x"])})
    for module in ("consuming", "group_offsets"):
        monkeypatch.setattr(f"millwheel.connectors.kafka.{module}.library", lambda: made)
    return Consuming("b:1", {}, "read_committed", Complaints("b:1"))


def values(consuming: Consuming, share: tuple[str, int], offset: int, most: int = 10) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    for _ in range(5):
        polled = consuming.take(share, offset, most - len(found))
        found += [message.value() for message in polled.messages]
        offset = polled.next_offset
        if len(found) == most:
            break
    return found, offset


def test_each_partition_gets_its_own_messages_in_order_whoever_is_asked_first(consuming: Consuming) -> None:
    assert values(consuming, SHARE, 0, 2) == ([b"1", b"2"], 2)
    assert values(consuming, OTHER, 0)[0] == [b"x"]
    assert values(consuming, SHARE, 2)[0] == [b"3"]


def test_to_ask_for_an_older_offset_reads_the_same_again(consuming: Consuming) -> None:
    first = values(consuming, SHARE, 0)
    assert values(consuming, SHARE, 0) == first
    assert values(consuming, SHARE, 1)[0] == [b"2", b"3"]
