"""Marks: up to which committable each shard of a sink has published, kept in a compacted topic.

A mark is written in the transaction of the rows, so that it stands exactly when they do. It also names the lease token
of its writer: a worker that finds a higher token is a zombie, and stops.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.connectors.kafka.client import ANSWER_S, library
from millwheel.errors import CorruptionError, UnavailableError

_FIRST_LOOK = 200  # messages before the end, where the newest mark is looked for first
_POLLS = 100  # attempts to read a partition to its end
_NOTHING = 15
"""After this many consecutive empty polls, of a fifth of a second each, an open transaction of another shard is in the
way. Its new owner ends it, and may be waiting for this thread."""


class Mark(msgspec.Struct, frozen=True):
    """``number`` is that of the last committable, -1 for none yet; ``token`` is the lease of its writer."""

    number: int
    token: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mark).decode


def encode(mark: Mark) -> bytes:
    """A mark as the value of a message, readable for people."""
    return _encode(mark)


def last_mark(consumer: Any, topic: str, name: str, everything: Any) -> Mark | None:
    """The newest committed mark of a shard, None if it has none. ``consumer`` reads only committed messages and reports
    the end of a partition. ``everything`` is a consumer that reads uncommitted messages as well, so it reports where
    the partition really ends.

    Call it after ``init_transactions`` only: before that, a transaction of the former owner may still be open, and its
    mark would appear after this read.
    """
    kafka = library()
    try:
        # For readers of committed messages the partition ends where the oldest open transaction begins. It may be
        # another shard's, with our own mark behind it: see test_the_open_transaction_of_another_shard_hides_no_mark.
        low, high = everything.get_watermark_offsets(kafka.TopicPartition(topic, 0), timeout=ANSWER_S)
        end, look = high, _FIRST_LOOK
        # Backwards, in growing pieces: the mark of a busy shard is near the end, whatever the compaction has left.
        while end > low:
            start = max(low, end - look)
            found = _newest_between(consumer, topic, name, start, end)
            if found is not None:
                return found
            end, look = start, look * 4
    except kafka.KafkaException as ex:
        raise UnavailableError(f"the marks in topic {topic} cannot be read: {ex.args[0].str()}") from ex
    return None


def _newest_between(consumer: Any, topic: str, name: str, start: int, end: int) -> Mark | None:
    kafka = library()
    found = None
    at = kafka.TopicPartition(topic, 0, start)
    consumer.assign([at])
    try:
        nothing = 0
        for _ in range(_POLLS):
            # Not consume(many, 0.2): it waits for that many until its time is over, at each recovery of a shard.
            arrived = [message for message in (consumer.poll(0.2), *consumer.consume(_FIRST_LOOK * 10, 0)) if message]
            for message in arrived:
                if message.error() is None and message.offset() < end and message.key() == name.encode():
                    found = _decoded(message.value(), topic)
            # Markers of transactions take offsets, too, so it is the position that says whether all was seen; behind
            # the last message only the end of the partition tells that there was nothing but markers.
            ended = any(_is_end(message) and message.offset() >= end for message in arrived)
            if ended or consumer.position([kafka.TopicPartition(topic, 0)])[0].offset >= end:
                return found
            nothing = 0 if any(message.error() is None for message in arrived) else nothing + 1
            if nothing >= _NOTHING:
                break
    finally:
        consumer.unassign()
    raise UnavailableError(f"the marks in topic {topic} could not be read to offset {end} in time")


def _is_end(message: Any) -> bool:
    error = message.error()
    return error is not None and error.name() == "_PARTITION_EOF"


def _decoded(value: bytes, topic: str) -> Mark:
    try:
        return _decode(value)
    except msgspec.DecodeError as ex:
        raise CorruptionError(f"topic {topic} holds something that is no mark ({value[:100]!r}): {ex}") from ex
