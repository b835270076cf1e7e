"""The part of confluent-kafka that a consumer of ours uses, over partitions in memory. Nothing is
fetched ahead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OFFSET_BEGINNING = -2


@dataclass(frozen=True)
class TopicPartition:
    """As the library's."""

    topic: str
    partition: int
    offset: int = -1001


@dataclass(frozen=True, eq=False)
class Error:
    """An event that is not a message."""

    code: str

    def __eq__(self, other: object) -> bool:
        raise SystemError("the library's errors compare with errors only")

    __hash__ = None  # type: ignore[assignment]

    def name(self) -> str:
        return self.code

    def str(self) -> str:
        return self.code

    def retriable(self) -> bool:
        return False


@dataclass(frozen=True)
class Message:
    """A message, or an event."""

    share: tuple[str, int]
    at: int
    data: bytes | None = None
    problem: Error | None = None
    named: list[tuple[str, bytes]] | None = None
    called: bytes | None = None

    def __len__(self) -> int:
        return len(self.data or b"")

    def topic(self) -> str:
        return self.share[0]

    def partition(self) -> int:
        return self.share[1]

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.called

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.named

    def error(self) -> Error | None:
        return self.problem


@dataclass
class Log:
    """A partition: what it holds from ``low`` on."""

    values: list[bytes]
    low: int = 0
    headers: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Those of some messages, by offset."""
    keys: dict[int, bytes] = field(default_factory=dict)
    """As ``headers``."""

    @property
    def end(self) -> int:
        return self.low + len(self.values)


@dataclass
class FakeKafka:
    """The module ``confluent_kafka``, and its only broker. ``groups``: what is committed, by group,
    topic and partition, with every commit in ``commits``."""

    logs: dict[tuple[str, int], Log]
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict)
    commits: list[tuple[str, str, int, int]] = field(default_factory=list)
    paused: set[tuple[str, int]] = field(default_factory=set)
    OFFSET_BEGINNING: int = OFFSET_BEGINNING
    TopicPartition: type = TopicPartition
    KafkaException: type = RuntimeError

    def Consumer(self, settings: dict[str, Any]) -> FakeConsumer:
        return FakeConsumer(self, settings)


class FakeConsumer:
    """One consumer; each call of ``consume`` has all messages there are, then an event for each
    end."""

    def __init__(self, kafka: FakeKafka, settings: dict[str, Any]) -> None:
        self._kafka = kafka
        self._group = settings["group.id"]
        self._at: dict[tuple[str, int], int] = {}

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            share = (each.topic, each.partition)
            beginning = each.offset == OFFSET_BEGINNING
            self._at[share] = self._kafka.logs[share].low if beginning else each.offset

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self._at[each.topic, each.partition]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._kafka.paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._kafka.paused -= {(each.topic, each.partition) for each in partitions}

    def consume(self, most: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        for share, at in list(self._at.items()):
            log = self._kafka.logs[share]
            if not log.low <= at <= log.end:
                found.append(Message(share, at, None, Error("_AUTO_OFFSET_RESET")))
                continue
            if share not in self._kafka.paused:
                found += [
                    Message(
                        share,
                        offset,
                        log.values[offset - log.low],
                        None,
                        log.headers.get(offset),
                        log.keys.get(offset),
                    )
                    for offset in range(at, log.end)
                ]
                self._at[share] = log.end
                found.append(Message(share, log.end, None, Error("_PARTITION_EOF")))
        return found

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        log = self._kafka.logs[at.topic, at.partition]
        return log.low, log.end

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        for each in offsets:
            self._kafka.groups[self._group, each.topic, each.partition] = each.offset
            self._kafka.commits.append((self._group, each.topic, each.partition, each.offset))

    def close(self) -> None:
        self._at.clear()
