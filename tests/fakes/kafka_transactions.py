"""The part of confluent-kafka that a sink of ours uses, over topics in memory. Errors come when a
test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kafka_library import TopicPartition


class KafkaException(Exception):
    """As the library's: its argument is a :class:`Failure`."""


@dataclass(frozen=True)
class Failure:
    """An error of the library."""

    code: str
    abortable: bool = False

    def name(self) -> str:
        return self.code

    def str(self) -> str:
        return f"the broker said {self.code}"

    def retriable(self) -> bool:
        return False

    def txn_requires_abort(self) -> bool:
        return self.abortable


class KafkaError(Failure):
    """As the library's, with words of our own."""

    _TIMED_OUT = "_TIMED_OUT"

    def __init__(self, code: str, words: str) -> None:
        super().__init__(code)
        object.__setattr__(self, "words", words)

    def str(self) -> str:
        return str(vars(self)["words"])


@dataclass(frozen=True)
class Row:
    """A message that is visible to readers of committed ones."""

    topic: str
    given: dict[str, Any]
    at: int = 0

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self.at

    def key(self) -> Any:
        return self.given["key"]

    def value(self) -> Any:
        return self.given["value"]


@dataclass
class FakeBrokers:
    """The module ``confluent_kafka``, and all brokers. ``calls`` are those of producers and
    consumers, by name; ``trouble`` is asked at each of them and may raise."""

    rows: list[Row] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    trouble: Callable[[str], None] = lambda call: None
    owners: dict[str, FakeProducer] = field(default_factory=dict)
    unsent: int = 0
    refused: Failure | None = None
    too_large: bytes | None = None
    """A value that is refused, together with all others that are flushed with it."""
    KafkaException: type[Exception] = KafkaException
    KafkaError: type = KafkaError
    TopicPartition: type = TopicPartition

    def Producer(self, settings: dict[str, Any]) -> FakeProducer:
        return FakeProducer(self, settings)

    def Consumer(self, settings: dict[str, Any]) -> FakeMarksConsumer:
        return FakeMarksConsumer(self, settings["isolation.level"])

    def called(self, name: str) -> None:
        self.calls.append(name)
        self.trouble(name)

    def of(self, topic: str) -> list[dict[str, Any]]:
        """What was produced into a topic."""
        return [row.given for row in self.rows if row.topic == topic]


class FakeProducer:
    """One producer. The newest one with a transactional id fences those before it, and aborts what
    they have open."""

    def __init__(self, brokers: FakeBrokers, settings: dict[str, Any]) -> None:
        self._brokers = brokers
        self.settings = settings
        self._id = settings.get("transactional.id", "")
        self._open: list[Row] | None = None
        self._reports: list[tuple[Any, Row]] = []

    def init_transactions(self, timeout: float) -> None:
        self._brokers.called("init_transactions")
        self._brokers.owners[self._id] = self

    def begin_transaction(self) -> None:
        self._brokers.called("begin_transaction")
        assert self._open is None, "a transaction is open already"
        self._open = []

    def produce(self, topic: str, on_delivery: Any = None, **given: Any) -> None:
        self._brokers.called("produce")
        row = Row(topic, given)
        if self._id:
            assert self._open is not None, "no transaction is open"
            self._open.append(row)
            self._reports.append((on_delivery, row))
            return
        if self._brokers.refused is None:
            self._brokers.rows.append(row)
        if on_delivery is not None:
            on_delivery(self._brokers.refused, row)

    def commit_transaction(self, timeout: float) -> None:
        assert timeout == -1, "a commit that is given up may stand or not, for ever"
        if self._brokers.owners[self._id] is not self:
            raise KafkaException(Failure("_FENCED"))
        self._brokers.called("commit_transaction")
        assert self._open is not None
        if self._refuses(self._open):
            raise KafkaException(Failure("MSG_SIZE_TOO_LARGE", True))
        self._commit()
        self._brokers.called("commit_transaction answered")

    def _commit(self) -> None:
        for row in self._open or ():
            self._brokers.rows.append(Row(row.topic, row.given, len(self._brokers.of(row.topic))))
        self._open = None

    def abort_transaction(self, timeout: float) -> None:
        self._brokers.called("abort_transaction")
        self._open = None

    def poll(self, timeout: float) -> None:
        self._brokers.called("poll")

    def flush(self, timeout: float) -> int:
        self._brokers.called("flush")
        reports, self._reports = self._reports, []
        refused = (
            Failure("MSG_SIZE_TOO_LARGE") if self._refuses([row for _, row in reports]) else None
        )
        for told, row in reports:
            if told is not None:
                told(refused, row)
        return self._brokers.unsent

    def _refuses(self, rows: list[Row]) -> bool:
        too_large = self._brokers.too_large
        return too_large is not None and any(row.given["value"] == too_large for row in rows)


class FakeMarksConsumer:
    """Reads one partition of committed messages."""

    def __init__(self, brokers: FakeBrokers, isolation: str) -> None:
        self._brokers = brokers
        self._isolation = isolation
        self._at = TopicPartition("", 0)

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        assert self._isolation == "read_uncommitted", (
            "an open transaction of another shard hides what lies behind it"
        )
        self._brokers.called("get_watermark_offsets")
        return 0, len(self._brokers.of(at.topic))

    def assign(self, partitions: list[TopicPartition]) -> None:
        [self._at] = partitions

    def unassign(self) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def consume(self, most: int, timeout: float) -> list[Row]:
        assert self._isolation == "read_committed"
        at, found = self._at, [row for row in self._brokers.rows if row.topic == self._at.topic]
        self._at = TopicPartition(at.topic, 0, len(found))
        return found[at.offset :]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [self._at]

    def close(self) -> None: ...
