"""Reports our committed positions as offsets of a consumer group, for lag tools. They are never
read back.

librdkafka's own thread sends them, so the loop never waits for the brokers. A lost answer does no
harm: the next offsets replace the lost ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeAlias

from millwheel.connect.connectors.kafka.client import Complaints, library

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
        """A commit that holds it is durable; ``offset`` is the next one to be read."""
        self._unsent[share] = offset

    def send(self, now_s: float | None = None) -> None:
        """Send what was noted, but no more than once a second."""
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
