"""Marks: up to which committable each shard of a sink has published, kept in a compacted topic.

A mark is written in the transaction of the rows, so that it stands exactly when they do. It also names the lease token
of its writer: a worker that finds a higher token is a zombie, and stops.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from millwheel.connectors.kafka.client import ANSWER_S, library
from millwheel.connectors.kafka.ends import MarksEnd
from millwheel.connectors.kafka.errors import in_words
from millwheel.errors import CorruptionError, UnavailableError

MARKS_PARTITION = 0
_FIRST_LOOK = 200  # messages before the end, where the newest mark is looked for first
_SILENCE_S = 3.0
"""After so long without a message or an offset further, an open transaction of another shard is in the way. Its new
owner ends it, and may be waiting for this thread."""


class Mark(msgspec.Struct, frozen=True):
    """``number`` is that of the last committable, -1 for none yet; ``token`` is the lease of its writer."""

    number: int
    token: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mark).decode


def encode(mark: Mark) -> bytes:
    """A mark as the value of a message, readable for people."""
    return _encode(mark)


def last_mark(consumer: Any, ends: MarksEnd, name: str, everything: Any, since: int = -1) -> Mark | None:
    """The newest committed mark of a shard from the offset ``since`` on (-1: of all), None if there is none.
    ``consumer`` reads only committed messages and reports the end of a partition. ``everything`` is a consumer that
    reads uncommitted messages as well, so it reports where the partition really ends.

    Call it after ``init_transactions`` only: before that, a transaction of the former owner may still be open, and its
    mark would appear after this read. Raises UnavailableError when nothing is answered for :data:`_SILENCE_S`.
    """
    kafka = library()
    topic = ends.topic
    try:
        # For readers of committed messages the partition ends where the oldest open transaction begins. It may be
        # another shard's, with our own mark behind it: see test_the_open_transaction_of_another_shard_hides_no_mark.
        at = kafka.TopicPartition(topic, MARKS_PARTITION)
        low, high = everything.get_watermark_offsets(at, timeout=ANSWER_S)
        ends.seen(high)
        if since <= high:  # else the topic was made anew, and what is known of the old one says nothing
            low = max(low, since)
        end, look = high, _FIRST_LOOK
        # Backwards, in growing pieces: the mark of a busy shard is near the end, whatever the compaction has left.
        while end > low:
            start = max(low, end - look)
            found = _newest_between(consumer, topic, name, start, end)
            if found is not None:
                return found
            end, look = start, look * 4
    except kafka.KafkaException as ex:
        raise in_words(ex, f"the marks in topic {topic}") from ex
    return None


def _newest_between(consumer: Any, topic: str, name: str, start: int, end: int) -> Mark | None:
    kafka = library()
    key, found = name.encode(), None
    at = kafka.TopicPartition(topic, MARKS_PARTITION, start)
    consumer.assign([at])
    try:
        position, moved_s = start, time.monotonic()
        while time.monotonic() < moved_s + _SILENCE_S:
            # Not consume(many, 0.2): it waits for that many until its time is over, at each recovery of a shard.
            arrived = [message for message in (consumer.poll(0.2), *consumer.consume(_FIRST_LOOK * 10, 0)) if message]
            for message in arrived:
                if message.error() is None and message.offset() < end and message.key() == key:
                    found = _decoded(message.value(), topic)
            # Markers of transactions take offsets, too, so it is the position that says whether all was seen; behind
            # the last message only the end of the partition tells that there was nothing but markers.
            ended = any(_is_end(message) and message.offset() >= end for message in arrived)
            reached = consumer.position([kafka.TopicPartition(topic, MARKS_PARTITION)])[0].offset
            if ended or reached >= end:
                return found
            # However long it takes: a topic of all pipelines of a cluster may hold millions of marks. What ends the
            # look is that nothing comes (test_a_mark_is_found_however_far_back_it_lies).
            if reached > position or any(message.error() is None for message in arrived):
                position, moved_s = reached, time.monotonic()
    finally:
        consumer.unassign()
    raise UnavailableError(
        f"the marks in topic {topic} were read to offset {position} of {end}, and then nothing came for "
        f"{_SILENCE_S:.0f} s: perhaps a transaction of another shard is open there"
    )


def _is_end(message: Any) -> bool:
    error = message.error()
    return error is not None and error.name() == "_PARTITION_EOF"


def _decoded(value: bytes, topic: str) -> Mark:
    try:
        return _decode(value)
    except msgspec.DecodeError as ex:
        raise CorruptionError(f"topic {topic} holds something that is no mark ({value[:100]!r}): {ex}") from ex
