"""How far the topic of marks reaches, as far as this process has seen.

A committable remembers it when it is prepared. Its own mark, and that of any later owner, is written behind that, so
whoever publishes it need not look further back. This takes no clock, and no search for a shard that is new.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from millwheel.connectors.kafka.client import ANSWER_S, Complaints, library, settings
from millwheel.connectors.kafka.sink_options import KafkaSinkOptions

_FIRST_WAIT_S = 2.0
"""How long the first batch of a process waits for the brokers to tell. Without it the first owner of a new shard would
search the whole topic."""


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

    def told(self, error: Any, message: Any) -> None:
        """A report of the library on a mark of ours."""
        if error is None and (offset := message.offset()) is not None:
            self.seen(int(offset))

    def known(self) -> int:
        """The end as known by now, -1 for unknown. The first call may wait for a moment."""
        if self._asked:
            self._answered.wait(_FIRST_WAIT_S)
            self._answered.set()  # nobody waits twice
        return self._end

    def ask(self, options: KafkaSinkOptions, complaints: Complaints) -> None:
        """Ask the brokers, once, on a thread: batches are prepared on the loop, which must not wait for them."""
        with self._lock:
            if self._asked:
                return
            self._asked = True
        threading.Thread(target=self._look, args=(options, complaints), name="kafka-marks-end", daemon=True).start()

    def _look(self, options: KafkaSinkOptions, complaints: Complaints) -> None:
        kafka = library()
        try:
            consumer = kafka.Consumer(
                {**settings(options.brokers, options.config, complaints), "group.id": "millwheel"}
            )
            try:
                at = kafka.TopicPartition(self.topic, 0)
                self.seen(consumer.get_watermark_offsets(at, timeout=ANSWER_S)[1])
            finally:
                consumer.close()
        except BaseException:  # a search of the topic takes longer, and finds the same
            self._answered.set()


_known: dict[tuple[Hashable, ...], MarksEnd] = {}
_lock = threading.Lock()


def ends_of(options: KafkaSinkOptions) -> MarksEnd:
    """The shared object of a topic of marks in this process."""
    name = (options.brokers, options.marks_topic, *sorted((key, str(value)) for key, value in options.config.items()))
    with _lock:
        return _known.setdefault(name, MarksEnd(options.marks_topic))
