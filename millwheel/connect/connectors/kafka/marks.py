"""Marks: the last committable that each shard of a sink has published, kept in a compacted topic.

A mark is written in the transaction of the rows, so that it stands exactly when they do. It also
names the lease token of its writer: a worker that finds a higher token is a zombie, and stops.

A committable records the end of the topic, as far as its process had seen it, when it was prepared.
Its own mark, and that of any later owner, is written behind that, so a publisher need not look
further back. This takes no clock, and no search for a shard that is new.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from typing import Any

import msgspec

from millwheel.connect.connectors.kafka.client import (
    ANSWER_S,
    Complaints,
    in_words,
    library,
    settings,
)
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.errors import CorruptionError, UnavailableError

MARKS_PARTITION = 0  # Fixed: all marks lie in one partition, so that one read finds the newest
_FIRST_LOOK = 200  # messages before the end, where the newest mark is looked for first
_SILENCE_S = 3.0
"""After so long without a message or an offset further, an open transaction of another shard is in
the way. Its new owner ends it, and may be waiting for this thread."""
_FIRST_WAIT_S = 2.0
"""How long the first batch of a process waits for the brokers' answer. Without it the first owner
of a new shard would search the whole topic."""


class Mark(msgspec.Struct, frozen=True):
    """``number`` is that of the last committable, -1 for none yet; ``token`` is the lease of its
    writer."""

    number: int
    token: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mark).decode


def encode(mark: Mark) -> bytes:
    """A mark as the value of a message, readable for people."""
    return _encode(mark)


class MarksEnd:
    """The greatest known end of one topic of marks. Any thread may use it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._lock = threading.Lock()
        self._end = -1
        self._asked = False
        self._answered = threading.Event()

    def seen(self, end: int) -> None:
        """Note that the topic reaches at least to this offset."""
        with self._lock:
            self._end = max(self._end, end)
        self._answered.set()

    def on_delivery(self, error: Any, message: Any) -> None:
        """A report of the library on a mark of ours."""
        if error is None and (offset := message.offset()) is not None:
            self.seen(int(offset))

    def latest(self) -> int:
        """The greatest end seen so far, -1 for none. The first call may wait for a moment."""
        if self._asked:
            self._answered.wait(_FIRST_WAIT_S)
            self._answered.set()  # no second wait
        return self._end

    def ask(self, options: KafkaSinkOptions, complaints: Complaints) -> None:
        """Ask the brokers, once, on a thread: batches are prepared on the loop, which must not wait
        for them."""
        with self._lock:
            if self._asked:
                return
            self._asked = True
        threading.Thread(
            target=self._look, args=(options, complaints), name="kafka-marks-end", daemon=True
        ).start()

    def _look(self, options: KafkaSinkOptions, complaints: Complaints) -> None:
        kafka = library()
        try:
            consumer = kafka.Consumer(
                {**settings(options.brokers, options.config, complaints), "group.id": "millwheel"}
            )
            try:
                at = kafka.TopicPartition(self.topic, MARKS_PARTITION)
                self.seen(consumer.get_watermark_offsets(at, timeout=ANSWER_S)[1])
            finally:
                consumer.close()
        except BaseException:  # a search of the topic takes longer, and finds the same
            self._answered.set()


_all_ends: dict[tuple[Hashable, ...], MarksEnd] = {}
_lock = threading.Lock()


def ends_of(options: KafkaSinkOptions) -> MarksEnd:
    """The shared object of a topic of marks in this process."""
    name = (
        options.brokers,
        options.marks_topic,
        *sorted((key, str(value)) for key, value in options.config.items()),
    )
    with _lock:
        return _all_ends.setdefault(name, MarksEnd(options.marks_topic))


def last_mark(
    consumer: Any, ends: MarksEnd, name: str, everything: Any, offset: int = -1
) -> Mark | None:
    """The newest committed mark of a shard from ``offset`` on (-1: of all), None if there is none.
    ``consumer`` reads only committed messages and reports the end of a partition. ``everything`` is
    a consumer that reads uncommitted messages as well, so it reports the real end of the
    partition.

    Call it after ``init_transactions`` only: before that, a transaction of the former owner may
    still be open, and its mark would appear after this read. Raises UnavailableError after
    :data:`_SILENCE_S` without an answer.
    """
    kafka = library()
    topic = ends.topic
    try:
        # For readers of committed messages the partition ends where the oldest open transaction
        # begins. It may be another shard's, with our own mark behind it: see
        # test_the_open_transaction_of_another_shard_hides_no_mark.
        at = kafka.TopicPartition(topic, MARKS_PARTITION)
        low, high = everything.get_watermark_offsets(at, timeout=ANSWER_S)
        ends.seen(high)
        # else the topic was made anew, and offsets of the old one mean nothing
        if offset <= high:
            low = max(low, offset)
        end, look = high, _FIRST_LOOK
        # Backwards, in growing pieces: the mark of a busy shard is near the end, however much the
        # compaction has left.
        while end > low:
            start = max(low, end - look)
            mark = _newest_between(consumer, topic, name, start, end)
            if mark is not None:
                return mark
            end, look = start, look * 4
    except kafka.KafkaException as ex:
        raise in_words(ex, f"the marks in topic {topic}") from ex
    return None


def _newest_between(consumer: Any, topic: str, name: str, start: int, end: int) -> Mark | None:
    kafka = library()
    key, mark = name.encode(), None
    at = kafka.TopicPartition(topic, MARKS_PARTITION, start)
    consumer.assign([at])
    try:
        position, moved_s = start, time.monotonic()
        while time.monotonic() < moved_s + _SILENCE_S:
            # Not consume(many, 0.2): it waits for that many until its time is over, at each
            # recovery of a shard.
            arrived = [
                message
                for message in (consumer.poll(0.2), *consumer.consume(_FIRST_LOOK * 10, 0))
                if message
            ]
            for message in arrived:
                if message.error() is None and message.offset() < end and message.key() == key:
                    mark = _decoded(message.value(), topic)
            # Markers of transactions take offsets, too, so the position decides whether all was
            # seen; behind the last message only the end of the partition shows that nothing but
            # markers followed.
            ended = any(_is_end(message) and message.offset() >= end for message in arrived)
            reached = consumer.position([kafka.TopicPartition(topic, MARKS_PARTITION)])[0].offset
            if ended or reached >= end:
                return mark
            # However long it takes: a topic of all pipelines of a cluster may hold millions of
            # marks. The search ends when no message comes
            # (test_a_mark_is_found_however_far_back_it_lies).
            if reached > position or any(message.error() is None for message in arrived):
                position, moved_s = reached, time.monotonic()
    finally:
        consumer.unassign()
    raise UnavailableError(
        f"the marks in topic {topic} were read to offset {position} of {end}, and then nothing came"
        f" for {_SILENCE_S:.0f} s: perhaps a transaction of another shard is open there"
    )


def _is_end(message: Any) -> bool:
    error = message.error()
    return error is not None and error.name() == "_PARTITION_EOF"


def _decoded(value: bytes, topic: str) -> Mark:
    try:
        return _decode(value)
    except msgspec.DecodeError as ex:
        raise CorruptionError(
            f"topic {topic} holds something that is not a mark ({value[:100]!r}): {ex}"
        ) from ex
