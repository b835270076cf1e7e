"""Publishes the committables of one shard, each in one transaction together with its number.

The rows are in our journal before anything is sent. So a transaction that is aborted, or that times
out while the brokers are away, loses nothing: it is sent again. An owner obtains the right to send
in three steps:

1. ``init_transactions`` under the shard's transactional id ends any transaction of a former owner,
   and fences it;
2. the newest mark is read: a higher token than ours means that *we* are the former owner;
3. our own token is written as a mark (the claim), so that a former owner that returns finds it in
   step 2.

Step 2 asks only whether this committable was published, or a newer owner has come. Both happen
after it was prepared, so only the marks behind the end of the topic at that time are read
(``marks.py``): no more than have been written since, however many the topic holds.

A zombie that begins with step 1 while its successor is between 1 and 3 fences the successor for a
moment. The successor's claim then fails and it starts again with 1; the mark that it reads includes
everything that the zombie has published.

When rows of a transaction may have been refused, the next one asks for a report on each. A broker
refuses a message that is too large together with all others of its request, so then they are sent
one by one: that shows which are too large, or that only all of them together were, and the
transaction counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from millwheel.connect.connectors.external.absence import Absence
from millwheel.connect.connectors.external.meanings import Meaning, UnknownError, error_for
from millwheel.connect.connectors.external.target import RowsRefusedError
from millwheel.connect.connectors.kafka import client
from millwheel.connect.connectors.kafka.client import (
    ANSWER_S,
    BESIDE,
    FENCED,
    PERHAPS,
    REFUSED,
    TOGETHER,
    Complaints,
    library,
    settings,
)
from millwheel.connect.connectors.kafka.marks import (
    MARKS_PARTITION,
    Mark,
    encode,
    ends_of,
    last_mark,
)
from millwheel.connect.connectors.kafka.messages import Committable, Message
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.core.model.lease import Lease
from millwheel.errors import FencedError, MillwheelError, UnavailableError, invariant

log = logging.getLogger("millwheel.kafka")
_WITHOUT_END = -1
"""A bounded commit leaves a transaction that cannot always be aborted (librdkafka#3297)."""
_WAIT_MS = 10  # of the brokers, for marks that may come: requested ones are there
_FLUSH_S = 60.0  # for the brokers to take messages; then the batch is published again


class Transactions:
    """Publishes exactly once. For one thread at a time. ``name`` is the globally unique name of the
    shard: its transactional id, and the key of its marks."""

    def __init__(
        self,
        options: KafkaSinkOptions,
        name: str,
        token: int,
        complaints: Complaints,
        absence: Absence,
    ) -> None:
        self._options = options
        self._name = name
        self._token = token
        self._complaints = complaints
        self._absence = absence
        self._ends = ends_of(options)
        self._kafka = library()
        self._producer: Any = None
        self._last = -1
        self._at = Committable(0, [])
        """The committable to be published: its offset is where the marks are read from."""
        self._fenced = False
        self._carefully = False

    def publish(self, committable: Committable) -> None:
        """Make the messages visible to readers of committed messages, once, even if earlier owners
        have tried. Raises UnavailableError when the caller should try again, RowsRefusedError when
        refused messages keep all of them from being written, FencedError when a newer owner has
        published."""
        self.begin(committable)
        try:
            if committable.number > self._last:
                self._transact(committable.messages, committable.number)
                self._carefully = False  # not at the claim, whose transaction has no rows
        except self._kafka.KafkaException as ex:
            raise self._after(ex.args[0]) from ex
        except UnavailableError as ex:  # the marks could not be read
            self._absence.noted(str(ex))
            raise
        self._absence.over()

    def has(self, committable: Committable) -> bool:
        """Whether it is published already, by any owner. Raises as :meth:`publish` does."""
        self._producer = None
        self.begin(committable)
        return self._last >= committable.number

    def begin(self, committable: Committable) -> None:
        """Obtain the right to send, unless we have it. Raises as :meth:`publish` does."""
        self._at = committable
        try:
            if self._producer is None:
                self._begin()
        except self._kafka.KafkaException as ex:
            raise self._after(ex.args[0]) from ex
        except UnavailableError as ex:  # the marks could not be read
            self._absence.noted(str(ex))
            raise

    def close(self) -> None:
        """Close the connections. The next owner aborts any open transaction."""
        self._producer = None

    def _begin(self) -> None:
        options = self._options
        # A zombie must not fence its successor in turn, only to find that it is one
        # (test_a_zombie_that_knows_that_it_was_fenced_does_not_fence_its_heir).
        if self._fenced:
            self._last_published()
        producer = self._kafka.Producer(
            {
                "linger.ms": 0,
                **settings(options.brokers, options.config, self._complaints),
                "transactional.id": self._name,
            }
        )
        # Before the look: a transaction that a former owner has open could be committed behind it,
        # and be written twice (test_a_zombie_between_any_two_calls_adds_nothing).
        producer.init_transactions(ANSWER_S)
        self._last = self._last_published()
        self._producer = producer
        self._transact([], self._last)  # the claim

    def _last_published(self) -> int:
        """The number of the last published committable, by any owner. Raises FencedError for a
        higher token."""
        committed, everything = self._reader("read_committed"), self._reader("read_uncommitted")
        try:
            mark = last_mark(committed, self._ends, self._name, everything, self._at.offset)
        finally:
            committed.close()
            everything.close()
        if mark is None:
            # Batches are published in order: those before this one are there, wherever their marks
            # lie.
            return self._at.number - 1
        # Without this a zombie would go on after its successor, and publish batches that the
        # successor has published again.
        if Lease(self._token).is_behind(mark.token):
            theirs = f"its lease token is {mark.token}, ours {self._token}"
            raise FencedError(f"{self._name} has a newer publisher: {theirs}")
        return mark.number

    def _reader(self, isolation: str) -> Any:
        return self._kafka.Consumer(
            {
                **settings(self._options.brokers, self._options.config, self._complaints),
                "group.id": "millwheel",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": _WAIT_MS,
            }
        )

    def _transact(self, messages: Sequence[Message], number: int) -> None:
        producer = self._producer
        # By a mark that goes back, the next owner would publish batches again.
        invariant(number >= self._last, f"{self._name}: mark {number} follows mark {self._last}")
        producer.begin_transaction()
        if self._carefully and messages:
            self._deliver(messages)
            producer = self._producer
        else:
            for message in messages:
                _produce(producer, self._options.topic_of(message.topic), message)
        # Last: a transaction without rows or without its mark would go unnoticed.
        # By number: the topic may have been made with more partitions, and marks are read in the
        # first one.
        mark = Message(
            self._name.encode(), encode(Mark(number, self._token)), [], MARKS_PARTITION, 0
        )
        _produce(producer, self._options.marks_topic, mark, self._ends.on_delivery)
        producer.commit_transaction(_WITHOUT_END)
        self._last, self._fenced = number, False

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Send the messages. Raises RowsRefusedError and leaves the transaction uncommitted: none
        of it may become visible beside its dead letters."""
        failed = _reports(self._producer, self._options, messages)
        refused = {
            index: error for index, error in failed.items() if error.name() in REFUSED - TOGETHER
        }
        if not refused and failed:
            other = [error for error in failed.values() if error.name() not in TOGETHER]
            if other:
                raise self._kafka.KafkaException(other[0])
            refused = self._deliver_each(messages)
        if refused:
            self._give_up()
            self._carefully = False
            raise RowsRefusedError(_words(self._options, messages, refused))

    def _deliver_each(self, messages: Sequence[Message]) -> dict[int, Any]:
        """Send the messages one by one, in a transaction of its own; the refused ones, each with
        the reason."""
        refused: dict[int, Any] = {}
        self._begin_again()
        for index, message in enumerate(messages):
            error = _reports(self._producer, self._options, [message]).get(0)
            if error is None:
                continue
            if error.name() not in REFUSED:
                raise self._kafka.KafkaException(error)
            refused[index] = error
            self._begin_again()
        return refused

    def _begin_again(self) -> None:
        # With a new producer: one that has aborted after a refusal purges its next messages
        # (librdkafka 2.x).
        self._give_up()
        self._begin()
        self._producer.begin_transaction()

    def _give_up(self) -> None:
        # The next producer would wait for half a second if it found the transaction open.
        producer, self._producer = self._producer, None
        with suppress(self._kafka.KafkaException):
            producer.abort_transaction(_WITHOUT_END)

    def _after(self, error: Any) -> Exception:
        """Our error for an error of the library. The producer is discarded in any case: a new one
        reads the mark, which shows whether the transaction counts."""
        # Kept, it would trust the number that it remembers, and a commit whose answer was lost
        # would be done twice (test_a_commit_whose_answer_is_lost_is_not_done_twice).
        producer, self._producer = self._producer, None
        if error.name() not in FENCED and producer is not None and error.txn_requires_abort():
            with suppress(self._kafka.KafkaException):
                producer.abort_transaction(_WITHOUT_END)
        self._fenced = error.name() in FENCED
        perhaps_refused = error.name() in PERHAPS
        where = f"Kafka at {self._options.brokers} did not take a transaction of {self._name}"
        if perhaps_refused and self._carefully:  # nor does the report on each name one
            self._carefully = False
            return UnknownError(f"{where}: {error.str()}")
        self._carefully = perhaps_refused
        if self._fenced:
            log.info("%s: another producer has taken over (%s)", self._name, error.name())
        meaning = Meaning.ABSENT if perhaps_refused else client.meaning_of(error)
        if meaning is Meaning.ABSENT and not perhaps_refused and not self._fenced:
            # "timed out" alone explains little
            why = self._complaints.because() if error.name().startswith("_") else ""
            self._absence.noted(f"a transaction of {self._name} failed: {error.str()}{why}")
        return error_for(meaning, where, error.str())


class AtLeastOnce:
    """An idempotent producer without transactions: a crash may repeat the last rows."""

    def __init__(self, options: KafkaSinkOptions, complaints: Complaints, absence: Absence) -> None:
        self._options = options
        self._complaints = complaints
        self._absence = absence
        self._kafka = library()
        self._producer: Any = None
        self._but_refused = -1
        """The number of the batch whose rows are all written except the refused ones."""

    def begin(self, committable: Committable) -> None:
        """Nothing needs to be obtained."""

    def publish(self, committable: Committable) -> None:
        """Write the messages durably. Raises UnavailableError when the caller should retry,
        RowsRefusedError for messages that the brokers refuse; all others are written then."""
        if committable.number == self._but_refused:
            return
        options = self._options
        if self._producer is None:
            common = settings(options.brokers, options.config, self._complaints)
            self._producer = self._kafka.Producer(
                {"linger.ms": 5, **common, "enable.idempotence": True}
            )
        try:
            failed = _reports(self._producer, options, committable.messages)
            self._refuse(committable, failed)
        except self._kafka.KafkaException as ex:
            raise self._failed(ex.args[0]) from ex
        self._absence.over()

    def close(self) -> None:
        """Close the connections."""
        self._producer = None

    def _refuse(self, committable: Committable, failed: Mapping[int, Any]) -> None:
        """Send each refused message again, alone: it may have been refused only together with
        others of its request."""
        refused: dict[int, Any] = {}
        for index, first in sorted(failed.items()):
            error: Any = first
            if first.name() in REFUSED | BESIDE:
                error = _reports(self._producer, self._options, [committable.messages[index]]).get(
                    0
                )
            if error is not None and error.name() not in REFUSED:
                raise self._kafka.KafkaException(error)
            if error is not None:
                refused[index] = error
        if refused:
            self._but_refused = committable.number
            raise RowsRefusedError(_words(self._options, committable.messages, refused))

    def _failed(self, error: Any) -> MillwheelError:
        self._producer = None
        meaning = client.meaning_of(error)
        if meaning is Meaning.ABSENT:
            self._absence.noted(error.str() + self._complaints.because())
        topics = ", ".join(self._options.topics())
        return error_for(
            meaning, f"Kafka at {self._options.brokers} did not take rows for {topics}", error.str()
        )


def _reports(
    producer: Any, options: KafkaSinkOptions, messages: Sequence[Message]
) -> dict[int, Any]:
    """Send messages and wait. Returns the errors of undelivered ones, by index."""
    kafka = library()
    failed: dict[int, Any] = {}

    def report(index: int, error: Any, _: Any) -> None:
        if error is not None:
            failed[index] = error

    for index, message in enumerate(messages):
        try:
            _produce(producer, options.topic_of(message.topic), message, partial(report, index))
        except kafka.KafkaException as ex:
            failed[index] = ex.args[0]
    if producer.flush(_FLUSH_S):
        raise kafka.KafkaException(
            kafka.KafkaError(kafka.KafkaError._TIMED_OUT, f"no answer within {_FLUSH_S:.0f} s")
        )
    return failed


def _words(
    options: KafkaSinkOptions, messages: Sequence[Message], refused: Mapping[int, Any]
) -> dict[int, str]:
    """The brokers' errors about refused messages, in words."""
    reasons = {}
    for index, error in refused.items():
        message = messages[index]
        words = error.str().removeprefix("Unable to produce message: ")
        partition = f"partition {message.partition} of " if message.partition >= 0 else ""
        reasons[index] = (
            f"Kafka refuses it for {partition}topic {options.topic_of(message.topic)!r}: {words}"
        )
    return reasons


def _produce(
    producer: Any,
    topic: str,
    message: Message,
    on_delivery: Callable[[Any, Any], object] | None = None,
) -> None:
    # Most messages are but key and value. While they are handed over the loop waits for the
    # interpreter, and building them as a map first takes twice as long.
    if (
        on_delivery is None
        and not message.headers
        and message.partition < 0
        and not message.timestamp_ms
    ):
        try:
            producer.produce(topic, value=message.value, key=message.key)
        except BufferError:
            producer.poll(0.1)
        else:
            return
    arguments: dict[str, Any] = {"key": message.key, "value": message.value}
    if message.timestamp_ms:
        arguments["timestamp"] = message.timestamp_ms
    if message.headers:
        arguments["headers"] = message.headers
    if message.partition >= 0:
        arguments["partition"] = message.partition
    if on_delivery is not None:
        arguments["on_delivery"] = on_delivery
    while True:
        try:
            producer.produce(topic, **arguments)
        except BufferError:  # its queue is full
            producer.poll(0.1)
        else:
            return
