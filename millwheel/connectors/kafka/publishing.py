"""Publishes the committables of one shard, each in one transaction together with its number.

The rows are in our journal before anything is sent. So a transaction that is aborted, or that times out while the
brokers are away, loses nothing: it is sent again. Who may send is decided in this order:

1. ``init_transactions`` under the shard's transactional id ends whatever a former owner has open, and fences it;
2. the newest mark is read: a higher token than ours says that *we* are the former owner;
3. our own token is written as a mark (the claim), so that a former owner that comes back finds it in step 2.

A zombie between 1 and 3 of its successor fences it for a moment. Then the successor's claim fails, and it begins again
with 1: whatever the zombie has published by then is in the mark that it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from millwheel.connectors.kafka.client import ANSWER_S, Complaints, library, settings
from millwheel.connectors.kafka.marks import Mark, encode, last_mark
from millwheel.connectors.kafka.rows import Committable, Message
from millwheel.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.core.model.lease import Lease
from millwheel.errors import FencedError, UnavailableError

log = logging.getLogger("millwheel.kafka")
_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_WITHOUT_END = -1
"""A bounded commit leaves a transaction that cannot always be aborted (librdkafka#3297)."""
_FLUSH_S = 60.0  # for the brokers to take messages; then the batch is published again


class Transactions:
    """Exactly once. For one thread at a time. ``name`` is the shard's, unique in the world: it becomes its
    transactional id and the key of its marks."""

    def __init__(self, options: KafkaSinkOptions, name: str, token: int, complaints: Complaints) -> None:
        self._options = options
        self._name = name
        self._token = token
        self._complaints = complaints
        self._kafka = library()
        self._producer: Any = None
        self._last = -1
        self._fenced = False

    def publish(self, committable: Committable) -> None:
        """Visible to readers of committed messages, once, whoever has tried before. Raises UnavailableError when it
        should be tried again, FencedError when a newer owner has published."""
        try:
            if self._producer is None:
                self._begin()
            if committable.number > self._last:
                self._transact(committable.messages, committable.number)
        except self._kafka.KafkaException as ex:
            raise self._after(ex.args[0]) from ex

    def close(self) -> None:
        """Give the connections up; what is open is aborted by the next owner."""
        self._producer = None

    def _begin(self) -> None:
        options = self._options
        if self._fenced:  # a zombie must not fence its successor in turn, only to find that it is one
            self._known()
        producer = self._kafka.Producer(
            {
                "linger.ms": 0,
                **settings(options.brokers, options.config, self._complaints),
                "transactional.id": self._name,
            }
        )
        producer.init_transactions(ANSWER_S)
        self._last = self._known()
        self._producer = producer
        self._transact([], self._last)  # the claim

    def _known(self) -> int:
        """The number of the last committable that anybody has published. Raises FencedError for a higher token."""
        options = self._options
        consumer = self._kafka.Consumer(
            {
                **settings(options.brokers, options.config, self._complaints),
                "group.id": "millwheel",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        try:
            mark = last_mark(consumer, options.marks_topic, self._name)
        finally:
            consumer.close()
        if mark is None:
            return -1
        # Without this a zombie would go on after its heir, and publish batches that the heir has published again.
        if Lease(self._token).is_behind(mark.token):
            theirs = f"its lease token is {mark.token}, ours {self._token}"
            raise FencedError(f"{self._name} has a newer publisher: {theirs}")
        return mark.number

    def _transact(self, messages: list[Message], number: int) -> None:
        producer = self._producer
        producer.begin_transaction()
        for message in messages:
            _produce(producer, message.topic or self._options.topics()[0], message)
        # Last: a transaction without rows or without its mark would be found out by nobody.
        mark = Message(self._name.encode(), encode(Mark(number, self._token)), [], -1, 0)
        _produce(producer, self._options.marks_topic, mark)
        producer.commit_transaction(_WITHOUT_END)
        self._last, self._fenced = number, False

    def _after(self, error: Any) -> Exception:
        """What an error of the library means here. The producer is given up whatever it was: a new one knows whether
        the transaction counts, because it reads the mark."""
        producer, self._producer = self._producer, None
        if error.name() not in _FENCED and producer is not None and error.txn_requires_abort():
            with suppress(self._kafka.KafkaException):
                producer.abort_transaction(_WITHOUT_END)
        self._fenced = error.name() in _FENCED
        if self._fenced:
            log.info("%s: another producer has taken over (%s)", self._name, error.name())
        else:
            self._complaints(error)
        where = f"Kafka at {self._options.brokers}"
        return UnavailableError(f"{where} did not take a transaction of {self._name}: {error.str()}")


class AtLeastOnce:
    """An idempotent producer without transactions: a crash may repeat the last rows."""

    def __init__(self, options: KafkaSinkOptions, complaints: Complaints) -> None:
        self._options = options
        self._complaints = complaints
        self._kafka = library()
        self._producer: Any = None

    def publish(self, committable: Committable) -> None:
        """Durable at the brokers. Raises UnavailableError when it should be tried again."""
        options = self._options
        if self._producer is None:
            common = settings(options.brokers, options.config, self._complaints)
            self._producer = self._kafka.Producer({"linger.ms": 5, **common, "enable.idempotence": True})
        failed: list[Any] = []
        for message in committable.messages:
            topic = message.topic or options.topics()[0]
            _produce(self._producer, topic, message, lambda error, _: failed.append(error) if error else None)
        if self._producer.flush(_FLUSH_S) or failed:
            self._producer = None
            reason = failed[0].str() if failed else f"no answer within {_FLUSH_S:.0f} s{self._complaints.because()}"
            raise UnavailableError(
                f"Kafka at {options.brokers} did not take rows for {', '.join(options.topics())}: {reason}"
            )

    def close(self) -> None:
        """Give the connections up."""
        self._producer = None


def _produce(producer: Any, topic: str, message: Message, told: Callable[[Any, Any], object] | None = None) -> None:
    given: dict[str, Any] = {"key": message.key, "value": message.value}
    if message.timestamp_ms:
        given["timestamp"] = message.timestamp_ms
    if message.headers:
        given["headers"] = message.headers
    if message.partition >= 0:
        given["partition"] = message.partition
    if told is not None:
        given["on_delivery"] = told
    while True:
        try:
            producer.produce(topic, **given)
        except BufferError:  # its queue is full
            producer.poll(0.1)
        else:
            return
