"""One consumer for all partitions of a source in a process, the unread messages of each partition,
and our committed positions as offsets of a consumer group.

librdkafka fetches on threads of its own; nothing here waits. The loop reads partition by partition,
so messages of other partitions are kept until their turn. A partition with too many kept messages
is paused.

The offsets are for lag tools only and are never read back: our commits hold the positions. So the
loop does not wait for the brokers' answers, and a lost one does no harm: the next offsets replace
the lost ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from millwheel.connect.connectors.external.meanings import Meaning
from millwheel.connect.connectors.kafka.client import Complaints, library, meaning_of, settings
from millwheel.errors import ExhaustedError, SetupError, invariant

TopicShare: TypeAlias = tuple[str, int]
"""(topic, number of the partition)."""
_EVERY_S = 1.0
"""Between requests: lag tools look every few seconds, and each request is a write of the
brokers."""


class GroupOffsets:
    """For one thread. ``consumer`` is set once it exists: it needs :meth:`answered` to be made."""

    def __init__(self, complaints: Complaints) -> None:
        self.consumer: Any = None
        self._kafka = library()
        self._complaints = complaints
        self._unsent: dict[TopicShare, int] = {}
        self._sent_at = -_EVERY_S

    def note(self, share: TopicShare, offset: int) -> None:
        """Note that a commit with this offset is durable; it is the next one to be read."""
        self._unsent[share] = offset

    def send(self, now_s: float | None = None) -> None:
        """Send the noted offsets, but no more than once a second."""
        if (
            self._unsent
            and (time.monotonic() if now_s is None else now_s) >= self._sent_at + _EVERY_S
        ):
            self.send_at_once(now_s)

    def send_at_once(self, now_s: float | None = None) -> None:
        """Send the noted offsets now: there may be no later occasion."""
        if not self._unsent:
            return
        self._sent_at = time.monotonic() if now_s is None else now_s
        offsets = [
            self._kafka.TopicPartition(*share, offset) for share, offset in self._unsent.items()
        ]
        self._unsent = {}
        try:
            self.consumer.commit(offsets=offsets, asynchronous=True)
        except self._kafka.KafkaException as ex:
            self.answered(ex.args[0], offsets)

    def answered(self, error: Any, offsets: Iterable[Any]) -> None:
        """The brokers' answer. After an error the offsets are sent again, unless there are newer
        ones."""
        if error is None:
            return
        self._complaints(error)
        for each in offsets:
            self._unsent.setdefault((each.topic, each.partition), each.offset)


_KEPT = 40_000  # messages of a partition that wait; with more it is paused until half are taken
_KEPT_BYTES = 1 << 26  # or with more bytes of values
_PULL = 10_000  # messages that are taken from the library at once
_BOUNDS_S = 2.0  # for an answer that the loop of a worker waits for, once in each gap
_GONE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})


@dataclass(slots=True)
class _Assigned:
    """A partition that is read. ``next_offset`` is the offset of the next read. ``messages`` wait,
    with values of ``waiting_bytes``. ``end`` is the offset at which the broker reported the end for
    now (-1: it has not). ``gone``: retention has deleted the requested messages."""

    next_offset: int
    messages: list[Any] = field(default_factory=list)
    end: int = -1
    gone: bool = False
    paused: bool = False
    waiting_bytes: int = 0

    def put(self, run: list[Any]) -> None:
        """Append messages that have arrived."""
        self.messages += run
        # Of all of them, in C: sizes that repeat with a period fool any sample at a fixed stride.
        self.waiting_bytes += sum(map(len, run))

    def take(self, most: int) -> list[Any]:
        """Remove and return the first messages, at most ``most``."""
        messages = self.messages[:most]
        del self.messages[:most]
        self.waiting_bytes = self.waiting_bytes - sum(map(len, messages)) if self.messages else 0
        return messages

    def has_many(self, parts: int = 1) -> bool:
        """Whether the limit of waiting messages is reached; with ``parts``, that fraction of it."""
        return len(self.messages) > _KEPT // parts or self.waiting_bytes > _KEPT_BYTES // parts


@dataclass(frozen=True, slots=True)
class Polled:
    """Messages in the order of their offsets; the next read begins at ``next_offset``. ``at_end``:
    the broker had no further messages. ``gone``: the requested messages no longer exist."""

    messages: list[Any]
    next_offset: int
    at_end: bool
    gone: bool = False


class Consuming:
    """For one thread. Committed positions are reported to the consumer ``group``, for lag tools."""

    def __init__(
        self,
        brokers: str,
        config: Mapping[str, Any],
        isolation: str,
        complaints: Complaints,
        group: str | None = None,
    ) -> None:
        self._kafka = library()
        self._brokers = brokers
        self._offsets = None if group is None else GroupOffsets(complaints)
        callbacks = {} if self._offsets is None else {"on_commit": self._offsets.answered}
        self._consumer = self._kafka.Consumer(
            {
                "queued.max.messages.kbytes": 65_536,
                "fetch.wait.max.ms": 50,
                # Else a partition with many messages waiting is asked again a second after they are
                # taken.
                "fetch.queue.backoff.ms": 20,
                **settings(brokers, config, complaints),
                **callbacks,
                "group.id": group or config.get("group.id", "millwheel"),
                # Our commits hold the positions; the group's offsets are for people.
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # Else the library silently skips messages that retention has taken
                # (test_what_retention_has_taken_stops_reading_or_is_passed_over).
                "auto.offset.reset": "error",
                "isolation.level": isolation,
            }
        )
        if self._offsets is not None:
            self._offsets.consumer = self._consumer
        self._assigned: dict[TopicShare, _Assigned] = {}

    def take(self, share: TopicShare, offset: int, most: int) -> Polled:
        """Up to ``most`` messages from ``offset`` on. Never blocks."""
        if self._offsets is not None:
            self._offsets.send()
        at = self._assigned.get(share)
        # After a failure a shard asks for its uncommitted messages, not for the next ones here
        # (test_to_ask_for_an_older_offset_reads_the_same_again).
        if at is None or at.next_offset != offset:
            at = self._assign(share, offset)
        # A read of many messages costs the rest of the pipeline hardly more than one of few.
        while len(at.messages) < most and self._pull():
            pass
        if at.gone and not at.messages:
            del self._assigned[share]
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*share)])
            return Polled([], offset, False, gone=True)
        messages = at.take(most)
        if messages:
            # Messages of an earlier assignment would be applied twice.
            first = messages[0].offset()
            invariant(first >= offset, f"{share}: offset {first} was read, {offset} is next")
            at.next_offset = messages[-1].offset() + 1
        if at.paused and not at.has_many(2):
            at.paused = False
            self._consumer.resume([self._kafka.TopicPartition(*share)])
        at_end = not at.messages and at.end >= at.next_offset
        # Markers of transactions and compacted messages take offsets, too. A bounded source whose
        # last offsets are such would never end
        # (test_offsets_of_aborted_and_finished_transactions_are_passed_over).
        if at_end:
            at.next_offset = at.end
        return Polled(messages, at.next_offset, at_end)

    def bounds(self, share: TopicShare) -> tuple[int, int]:
        """The oldest offset, and the next one that will be written. Waits for the brokers, so ask
        only after a gap. Raises ExhaustedError when they do not answer."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(*share), timeout=_BOUNDS_S
            )
        except self._kafka.KafkaException as ex:
            raise ExhaustedError(
                f"Kafka at {self._brokers} does not report its offsets: {ex.args[0]}"
            ) from ex
        return low, high

    def committed(self, share: TopicShare, offset: int, last: bool = False) -> None:
        """A commit of ours with this position is durable. ``last``: the partition will not be read
        any further."""
        if self._offsets is not None:
            self._offsets.note(share, offset)
            if last:
                self._offsets.send_at_once()

    def leave(self, share: TopicShare) -> None:
        """Stop reading a partition in this process."""
        if self._offsets is not None:
            self._offsets.send_at_once()
        self._unassign(share)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _unassign(self, share: TopicShare) -> None:
        if self._assigned.pop(share, None) is not None:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*share)])

    def _assign(self, share: TopicShare, offset: int) -> _Assigned:
        self._unassign(share)
        begin = offset or self._kafka.OFFSET_BEGINNING
        self._consumer.incremental_assign([self._kafka.TopicPartition(*share, begin)])
        at = self._assigned[share] = _Assigned(offset)
        return at

    def _pull(self) -> bool:
        """Take the events that the library has ready, without waiting; whether there were messages
        among them."""
        polled = self._consumer.consume(_PULL, 0)
        if not polled:
            return False
        # Each call of a method of a message costs as much as decoding a part of it, so these
        # questions are asked in C, of the method of their type, and runs of one partition are moved
        # together.
        errors = list(map(type(polled[0]).error, polled))
        messages, events = polled, []
        # never ==: the library's errors raise later when compared
        if not all(map(is_, errors, repeat(None))):
            messages = [
                message for message, error in zip(polled, errors, strict=True) if error is None
            ]
            events = [
                message for message, error in zip(polled, errors, strict=True) if error is not None
            ]
        for run in self._runs(messages):
            share = (run[0].topic(), run[0].partition())
            at = self._assigned.get(share)
            if at is not None:
                at.put(run)
                if not at.paused and at.has_many():
                    at.paused = True
                    self._consumer.pause([self._kafka.TopicPartition(*share)])
        for event in events:
            self._note_error(
                event.error(), event, self._assigned.get((event.topic(), event.partition()))
            )
        return bool(messages)

    def _runs(self, messages: list[Any]) -> list[list[Any]]:
        """Neighbours of one partition together."""
        if not messages:
            return []
        if len(self._assigned) == 1:
            return [messages]
        kind = type(messages[0])
        numbers = np.fromiter(map(kind.partition, messages), np.int64, len(messages))
        changes = numbers[1:] != numbers[:-1]
        if len({topic for topic, _ in self._assigned}) > 1:
            topics = list(map(kind.topic, messages))
            changes |= np.array([one != other for one, other in pairwise(topics)], bool)
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(messages)]
        return [messages[begin:end] for begin, end in pairwise(edges)]

    def _note_error(self, error: Any, message: Any, at: _Assigned | None) -> None:
        if at is None:
            return
        if error.name() == "_PARTITION_EOF":
            at.end = message.offset()
        elif error.name() in _GONE:
            at.gone = True
        elif not error.retriable() and meaning_of(error) is not Meaning.ABSENT:
            raise SetupError(
                f"Kafka at {self._brokers} refuses topic {message.topic()}, partition"
                f" {message.partition()}: {error.str()}"
            )
