"""A topic as a sink. See ``transactions.py`` for how rows appear once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from millwheel.connect.connectors.external.absence import absence_of
from millwheel.connect.connectors.external.meanings import (
    Next,
    RowToBlameError,
    Tries,
    UnknownError,
    given_up,
    is_of_client,
)
from millwheel.connect.connectors.external.target import RowsRefusedError
from millwheel.connect.connectors.kafka import client
from millwheel.connect.connectors.kafka.client import (
    ANSWER_S,
    Complaints,
    existing_topics,
    library,
    settings,
)
from millwheel.connect.connectors.kafka.marks import MarksEnd, ends_of
from millwheel.connect.connectors.kafka.messages import (
    Committable,
    Rows,
    as_record,
    decode,
    encode,
    most_bytes,
    with_header,
    with_traces,
)
from millwheel.connect.connectors.kafka.sink_options import EXACTLY_ONCE, KafkaSinkOptions
from millwheel.connect.connectors.kafka.transactions import AtLeastOnce, Transactions
from millwheel.connect.formats.base import MessageEncoder
from millwheel.connect.formats.choice import build_encoder
from millwheel.connect.options import read_options
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    Refused,
    Sink,
    SinkBatch,
    Writer,
    flush_us,
)
from millwheel.connect.sinks.result_rows import Mode
from millwheel.errors import SetupError, UnavailableError, invariant


def build_kafka_sink(
    options: Mapping[str, Any], identity: str = "", folder: str = ""
) -> KafkaTopicSink:
    """``identity`` names the root of the run: transactional ids begin with it. Paths of schemas are
    relative to ``folder``. Raises ValueError for invalid options."""
    sink_options = read_options("the sink 'kafka'", options, KafkaSinkOptions)
    form = sink_options.form()
    encoder = (
        None
        if form.name in ("json", "debezium")
        else build_encoder(form, folder, sink_options.subject())
    )
    return KafkaTopicSink(sink_options, identity, encoder)


class KafkaTopicSink(Sink):
    """Built by :func:`build_kafka_sink`."""

    cut_records = 2_000

    def __init__(
        self, options: KafkaSinkOptions, identity: str, encoder: MessageEncoder | None = None
    ) -> None:
        library()
        self._encoder = encoder
        self._options = options
        self.identity = identity
        self._complaints = Complaints(options.brokers, aloud=False)
        self.flush_us = flush_us(options.flush)
        self.takes_retractions = Mode(options.mode) is not Mode.APPEND
        self.replaces_rows = Mode(options.mode) is Mode.UPSERT

    def check(self, identity: str) -> None:
        """Check that the topic exists; the topic of marks is created if needed. Raises
        SetupError."""
        options = self._options
        library()
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(settings(options.brokers, options.config, self._complaints))
        topics = existing_topics(admin, options.brokers, self._complaints)
        for name in options.topics():
            if name not in topics:
                raise SetupError(
                    f"Kafka at {options.brokers} has no topic {name!r}; create it with as many"
                    " partitions as its readers need"
                )
        self._check_topics(admin)
        if options.guarantee == EXACTLY_ONCE:
            if options.marks_topic not in topics:
                self._make_marks_topic(admin)
            self._check_marks_topic(admin)
        if self._encoder is not None:
            self._encoder.check()

    def _check_topics(self, admin: Any) -> None:
        """Raises SetupError if a setting of a topic does not fit this sink. Unreadable settings are
        skipped."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # it has no __all__

        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, name) for name in self._options.topics()
        ]
        for resource, answer in admin.describe_configs(resources, request_timeout=ANSWER_S).items():
            with suppress(KafkaException, KeyError, ValueError, TimeoutError):
                topic_settings = answer.result(ANSWER_S)
                self._check_size(resource.name, int(topic_settings["max.message.bytes"].value))
                self._check_key(resource.name, topic_settings["cleanup.policy"].value)

    def _check_marks_topic(self, admin: Any) -> None:
        """Raises SetupError if the brokers delete old marks: a batch whose mark is gone would be
        published again."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # it has no __all__

        name, policy = self._options.marks_topic, "compact"
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name)]
        for answer in admin.describe_configs(resources, request_timeout=ANSWER_S).values():
            with suppress(KafkaException, KeyError, ValueError, TimeoutError):
                policy = answer.result(ANSWER_S)["cleanup.policy"].value
        if policy != "compact":
            raise SetupError(
                f"the topic {name!r} of Kafka at {self._options.brokers}, in which the sink notes"
                f" what it has published, has cleanup.policy={policy}: the brokers delete notes"
                " that are still needed. Set it: kafka-configs.sh --bootstrap-server"
                f" {self._options.brokers} --alter --entity-type topics --entity-name {name}"
                " --add-config cleanup.policy=compact"
            )

    def _check_size(self, topic: str, theirs: int) -> None:
        """Checked before the run, because a row that the brokers refuse would hold up all rows
        behind it."""
        ours = most_bytes(self._options)
        if theirs < ours:
            raise SetupError(
                f"Kafka at {self._options.brokers} takes messages of up to {theirs} bytes in topic"
                f" {topic!r}, the sink makes them up to {ours}. Raise max.message.bytes of the"
                f" topic, or write config: {{message.max.bytes: {theirs}}}: larger rows are dead"
                " letters then"
            )

    def _check_key(self, topic: str, policy: str) -> None:
        """Brokers refuse each message without a key there, so every row would be a dead letter."""
        if "compact" in policy and self._options.key is None:
            raise SetupError(
                f"topic {topic!r} of Kafka at {self._options.brokers} is compacted: each of its"
                " messages needs a key, and the sink writes none. Write for example key: id, with"
                " a field of the rows, or set cleanup.policy=delete for the topic"
            )

    def _make_marks_topic(self, admin: Any) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        name = self._options.marks_topic
        try:
            admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})])[
                name
            ].result(ANSWER_S)
        except KafkaException as ex:
            if ex.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise SetupError(
                    f"Kafka at {self._options.brokers} does not create the topic {name!r}, in which"
                    f" the sink notes what it has published: {ex.args[0].str()}. Create it with one"
                    " partition and cleanup.policy=compact"
                ) from ex

    def open(self, shard: str, token: int) -> KafkaWriter:
        if not self.identity and self._options.guarantee == EXACTLY_ONCE:
            # Without it the shards of two roots would have the same transactional ids and marks:
            # each would fence the other, and take its rows for published.
            raise SetupError(
                "the sink 'kafka' lacks its root's identity: the file identity.json is"
                " missing or damaged where this worker found the pipeline. Restore it, or start"
                " with a new --root"
            )
        if self._options.guarantee == EXACTLY_ONCE:
            ends_of(self._options).ask(self._options, self._complaints)
        return KafkaWriter(
            self._options, f"{self.identity}/{shard}", token, self._complaints, self._encoder
        )


class KafkaWriter(Writer):
    """The committables of one shard. They are published one after the other, on a thread of the
    shard's own."""

    publishes_aside = True
    publishes_in_order = True

    def __init__(
        self,
        options: KafkaSinkOptions,
        name: str,
        token: int,
        complaints: Complaints,
        encoder: MessageEncoder | None = None,
    ) -> None:
        self._rows = Rows(options, encoder)
        self._encoder = encoder
        self._refused: list[Refused] = []
        self.lane = name
        self._where = f"Kafka at {options.brokers}"
        self._tries = Tries()
        self._absence = absence_of(self._where)
        self._ends: MarksEnd | None = None
        self._publisher: Transactions | AtLeastOnce
        if options.guarantee == EXACTLY_ONCE:
            self._ends = ends_of(options)
            self._publisher = Transactions(options, name, token, complaints, self._absence)
        else:
            self._publisher = AtLeastOnce(options, complaints, self._absence)

    def prepare(self, batch: SinkBatch) -> bytes:
        """The rows themselves: the commit stores them in the journal."""
        messages, self._refused = self._rows.messages(batch.records)
        if batch.traces:
            messages = with_traces(messages, batch.traces, batch.records, self._refused)
        return encode(
            Committable(batch.number, messages, -1 if self._ends is None else self._ends.latest())
        )

    def take_refused(self) -> list[Refused]:
        refused, self._refused = self._refused, []
        return refused

    def publish(self, committable: bytes) -> None:
        batch = decode(committable)
        sent = 0
        try:
            # Only here: a registry that is away holds up this thread, not the loop, and the rows
            # lie in the journal.
            header = b"" if self._encoder is None else self._encoder.header()
            self._publisher.begin(batch)
            sent = len(batch.messages)
            self._publisher.publish(with_header(batch, header) if header else batch)
        except RowsRefusedError as ex:
            self._tries.answered()
            raise _without(batch, ex.reasons) from ex
        except BaseException as ex:
            if not is_of_client(ex):
                raise
            self._after(batch, sent, client.in_words(ex, self._where))
        self._tries.worked(len(batch.messages))

    def renumbered(self, committable: bytes, number: int) -> bytes:
        return encode(msgspec.structs.replace(decode(committable), number=number))

    def _after(self, committable: Committable, sent: int, error: Exception) -> None:
        """Raise the error by which the runtime acts; ``sent`` messages had been sent when it came.
        Returns if the batch is published in spite of it."""
        if not isinstance(error, RowToBlameError | UnknownError):
            raise error
        what = self._tries.failed(error, sent)
        if what is Next.AGAIN:
            self._absence.noted(str(error))
            raise UnavailableError(str(error))
        if what is Next.STOP:
            raise given_up(error)
        if self._has(committable):
            return
        raise (
            _halved(committable, error)
            if what is Next.HALVE
            else _without(committable, {0: str(error)})
        )

    def _has(self, committable: Committable) -> bool:
        """Whether the brokers have it: the client may have failed behind the commit."""
        try:
            return isinstance(self._publisher, Transactions) and self._publisher.has(committable)
        except UnknownError as ex:
            raise UnavailableError(str(ex)) from ex

    def sweep(self, committables: list[bytes]) -> None:
        """Nothing is left behind: an open transaction is ended by the next owner."""

    def close(self) -> None:
        self._publisher.close()


def _halved(committable: Committable, error: Exception) -> BatchSplitError:
    # One half would be the batch itself, again and again.
    invariant(len(committable.messages) > 1, f"batch {committable.number} has no halves")
    number, messages, middle = (
        committable.number,
        committable.messages,
        len(committable.messages) // 2,
    )
    halves = [
        Committable(number, messages[:middle], committable.offset),
        Committable(number + 1, messages[middle:], committable.offset),
    ]
    return BatchSplitError(str(error), [encode(half) for half in halves])


def _without(batch: Committable, reasons: dict[int, str]) -> BatchRefusedError:
    # A batch without fewer messages would be refused for ever.
    invariant(
        bool(reasons) and reasons.keys() <= set(range(len(batch.messages))),
        f"batch {batch.number} has {len(batch.messages)} messages; refused are {sorted(reasons)}",
    )
    messages = [message for index, message in enumerate(batch.messages) if index not in reasons]
    refused = [
        Refused(as_record(batch.messages[index]), reason)
        for index, reason in sorted(reasons.items())
    ]
    return BatchRefusedError(refused, encode(msgspec.structs.replace(batch, messages=messages)))
