"""Topics as a source. A partition of a topic is a partition of ours, named ``topic/number``.

The position of a message is its offset plus one, so that the next read begins at the offset of the
same number. The runtime commits the applied positions, never a consumer group: the offsets of a
group only inform other tools.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.connect.connectors.kafka.client import Complaints, library
from millwheel.connect.connectors.kafka.consumer import Consuming, TopicShare
from millwheel.connect.connectors.kafka.partition_lists import Listing, ListingThread
from millwheel.connect.connectors.kafka.reader import Extras, Forms, KafkaReader
from millwheel.connect.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.connect.formats.base import MessageDecoder
from millwheel.connect.formats.choice import build_decoder
from millwheel.connect.formats.lines import JsonMessages, WholeJsonMessages
from millwheel.connect.options import read_options
from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.connect.sources.changes import EACH, ChangesReader
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import ExhaustedError

_COLUMNS = frozenset({"json", "avro", "protobuf", "csv"})
"""Formats with declared fields, which can be read as columns."""
# for the first list of partitions; then the source counts as out of reach for now
_FIRST_LIST_S = 2.0


def build_kafka_source(
    options: Mapping[str, Any],
    schema: type | None = None,
    fields: Mapping[str, str] | None = None,
    folder: str = "",
) -> KafkaTopicSource:
    """Paths of schemas are relative to ``folder``. Raises ValueError for invalid options."""
    FieldTypes(fields or {})
    source_options = read_options("the source 'kafka'", options, KafkaSourceOptions)
    decoder = build_decoder(source_options.form(), folder, fields or {})
    if decoder.changes and schema is not None:
        raise ValueError(
            "option 'format': debezium gives maps and retractions of maps; declare fields, not a"
            " schema"
        )
    return KafkaTopicSource(source_options, schema, fields or {}, decoder)


class KafkaTopicSource(Source):
    """Built by :func:`build_kafka_source`. Connects when it is asked for partitions."""

    poll_us = 2_000

    def __init__(
        self,
        options: KafkaSourceOptions,
        schema: type | None,
        fields: Mapping[str, str],
        decoder: MessageDecoder,
    ) -> None:
        library()
        self._decoder = decoder
        self._each = EACH if decoder.changes else 1
        self._options = options
        self._schema = schema
        self._fields = dict(fields)
        self._complaints = Complaints(options.brokers)
        self._consuming: Consuming | None = None
        self._listing: ListingThread | None = None
        self.bounded = options.until is not None

    def check(self) -> None:
        """Raises SetupError when no broker answers, or a topic does not exist."""
        listing = Listing(self._options)
        try:
            listing.shares()
        finally:
            listing.close()

    def partitions(self) -> Sequence[Partition]:
        """All partitions; in a bounded source with their first and last offsets as ``version``,
        which the root keeps."""
        if self.bounded:
            return self.ends()
        return [Partition(f"{topic}/{number}") for topic, number in sorted(self._listed())]

    def ends(self) -> Sequence[Partition]:
        """All partitions, with their first and last offsets as ``version``."""
        listing = Listing(self._options)
        try:
            spans = listing.spans(listing.shares())
        finally:
            listing.close()
        return [
            Partition(f"{topic}/{n}", (at.start, at.end))
            for (topic, n), at in sorted(spans.items())
        ]

    def open(self, partition: Partition) -> Reader:
        consuming = self._consumer()
        share = _share(partition)
        if self.bounded and partition.version is not None:
            start, end = partition.version
            return self._reader(
                KafkaReader(consuming, share, self._options, self._forms(), start, end)
            )
        start = -1
        if self._options.start != "earliest":
            start = (
                self._listed()[share].start if partition.version is None else partition.version[0]
            )
        return self._reader(KafkaReader(consuming, share, self._options, self._forms(), start))

    def committed(self, partition: Partition, position: int) -> None:
        if self._options.group is not None:
            position //= self._each
            last = partition.version is not None and position >= partition.version[1]
            self._consumer().committed(_share(partition), position, last)

    def _reader(self, reader: KafkaReader) -> Reader:
        return ChangesReader(reader) if self._decoder.changes else reader

    def _consumer(self) -> Consuming:
        if self._consuming is None:
            options = self._options
            self._consuming = Consuming(
                options.brokers, options.config, options.isolation, self._complaints, options.group
            )
        return self._consuming

    def _listed(self) -> Mapping[tuple[str, int], Any]:
        if self._listing is None:
            self._listing = ListingThread(self._options)
            weakref.finalize(self, self._listing.close)  # a shard that moves away drops its source
            self._listing.wait(_FIRST_LIST_S)
        partitions = self._listing.latest()
        if partitions is None:
            raise ExhaustedError(
                f"Kafka at {self._options.brokers} has not listed its partitions yet"
            )
        return partitions

    def _forms(self) -> Forms:
        options = self._options
        extras = Extras(options.key_field, options.timestamp_field, options.headers_field)
        form = options.form().name
        if form == "json" and self._schema is not None and not extras:
            return Forms(JsonMessages(self._schema), None, extras)
        columns, whole = None, None
        if self._fields and self._schema is None and not extras and form in _COLUMNS:
            columns = self._decoder if form != "json" else self._json_columns()
            whole = self._whole_json if form == "json" else None
        guesses = not self._fields and self._schema is None and not extras
        return Forms(self._decoder, self._schema, extras, columns, self._fields, guesses, whole)

    def _json_columns(self) -> MessageDecoder:
        from millwheel.core.columns.declared_fields import row_type

        return JsonMessages(row_type(self._fields))

    def _whole_json(self, fields: Mapping[str, str]) -> MessageDecoder:
        from millwheel.core.columns.declared_fields import row_type

        guessed, fields = fields.keys() - self._fields.keys(), {**fields, **self._fields}
        return WholeJsonMessages(row_type(fields, guessed, whole=True))


def _share(partition: Partition) -> TopicShare:
    # The root keeps a partition by this name. Kafka allows no slash in the name of a topic.
    topic, _, number = partition.name.rpartition("/")
    return topic, int(number)
