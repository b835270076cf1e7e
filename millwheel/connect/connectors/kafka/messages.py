"""Records as messages of Kafka, and a committable as bytes for the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.formats.base import MessageEncoder
from millwheel.connect.formats.debezium import DebeziumRows
from millwheel.connect.formats.row_lines import json_lines
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import Refused, SinkRecord
from millwheel.connect.sinks.result_rows import Mode, change_rows, rows_of
from millwheel.core.formats.codec import tuple_key
from millwheel.core.tracing import TRACEPARENT, TRACESTATE, TraceContext
from millwheel.core.windows.panes import Retraction, as_retraction
from millwheel.errors import CorruptionError, RecordError


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One message: a value of None is a tombstone; ``partition`` -1 leaves the choice to the
    key."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int
    timestamp_ms: int
    """0: the moment at which it is sent."""
    topic: str = ""
    """Empty where the sink has one topic only."""
    record_key: Any = None
    at_us: int = 0
    """Key and event time of its record: for a dead letter, should the brokers refuse the
    message."""


class Committable(msgspec.Struct, frozen=True, array_like=True):
    """The messages of one transaction, numbered from 0 in its shard."""

    number: int
    messages: list[Message]
    offset: int = -1
    """No mark of this committable or of a later owner lies before this offset; -1 for unknown."""


_MOST_BYTES, _ROOM_BYTES = 1_000_000, 512
"""librdkafka's limit of a message, and its overhead beside key and value."""
_encode_json = msgspec.json.Encoder(decimal_format="number").encode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Committable).decode


def encode(committable: Committable) -> bytes:
    """A committable in the form in which the commit of a shard stores it."""
    return _encode(committable)


def decode(data: bytes) -> Committable:
    """The inverse of :func:`encode`. Raises CorruptionError for damaged bytes."""
    try:
        return _decode(data)
    except msgspec.DecodeError as ex:
        raise CorruptionError(f"{len(data)} bytes of a commit are not rows for Kafka: {ex}") from ex


def most_bytes(options: KafkaSinkOptions) -> int:
    """The largest allowed message, in bytes."""
    return int(options.config.get("message.max.bytes", _MOST_BYTES))


def as_record(message: Message) -> SinkRecord:
    """A refused message as a record for a dead letter: key, time, and its encoded value."""
    return SinkRecord(tuple_key(message.record_key), _readable(message.value), message.at_us)


def with_header(committable: Committable, header: bytes) -> Committable:
    """A committable in which each value begins with ``header``; tombstones stay without a value."""
    messages = [
        (
            message
            if message.value is None
            else msgspec.structs.replace(message, value=header + message.value)
        )
        for message in committable.messages
    ]
    return msgspec.structs.replace(committable, messages=messages)


def with_traces(
    messages: Sequence[Message],
    traces: Mapping[int, TraceContext],
    records: Sequence[SinkRecord],
    refused: Sequence[Refused],
) -> list[Message]:
    """The messages of ``records`` but the ``refused`` ones; those of traced records have the
    context as headers, in place of headers of that name. ``traces`` are by the indexes of the
    records."""
    left_out = {id(each.record) for each in refused}
    indexes = [index for index, record in enumerate(records) if id(record) not in left_out]
    return [
        _traced(message, traces[index]) if index in traces else message
        for index, message in zip(indexes, messages, strict=True)
    ]


def _traced(message: Message, context: TraceContext) -> Message:
    own = [
        (name, value) for name, value in message.headers if name not in (TRACEPARENT, TRACESTATE)
    ]
    own.append((TRACEPARENT, context.parent.encode()))
    if context.state:
        own.append((TRACESTATE, context.state.encode("latin-1", "replace")))
    return msgspec.structs.replace(message, headers=own)


class Rows:
    """Makes messages from the records of one committable."""

    def __init__(self, options: KafkaSinkOptions, encoder: MessageEncoder | None = None) -> None:
        self._options = options
        self._encoder = encoder
        self._events = DebeziumRows() if options.form().name == "debezium" else None
        self._mode = Mode(options.mode)
        self._most_bytes = most_bytes(options) - _ROOM_BYTES
        self._key = _evaluator(options.key)
        self._topics = frozenset(options.topics())
        self._topic = _evaluator(options.topic_by())
        self._partition = _evaluator(options.partition)
        self._headers = [(name, _evaluator(text)) for name, text in options.headers.items()]
        self._alike = not (self._headers or self._topic or self._partition or options.event_time)

    def messages(self, records: Sequence[SinkRecord]) -> tuple[list[Message], list[Refused]]:
        """The messages in the order of the records, and the refused records: those whose
        expressions cannot be evaluated, and those too large for the brokers."""
        options = self._options
        backs = [as_retraction(record.value) for record in records]
        values, plain = [record.value for record in records], records
        if any(back is not None for back in backs):
            values = [
                value if back is None else back.value
                for value, back in zip(values, backs, strict=True)
            ]
            plain = [
                SinkRecord(r.key, value, r.timestamp)
                for r, value in zip(records, values, strict=True)
            ]
        if self._mode is Mode.CHANGELOG and self._events is None:
            rows = change_rows(records, options.with_key, options.with_timestamp, options.mark)
        else:
            rows = rows_of(plain, options.with_key, options.with_timestamp)
        encoded: Sequence[bytes | RecordError | None] = self._encoded(rows, records, backs)
        if self._mode is Mode.UPSERT:
            encoded = [
                line if back is None else None for line, back in zip(encoded, backs, strict=True)
            ]
        together = self._together(records, values, encoded)
        return self._each(records, values, encoded) if together is None else (together, [])

    def _together(
        self,
        records: Sequence[SinkRecord],
        values: Sequence[Any],
        encoded: Sequence[bytes | RecordError | None],
    ) -> list[Message] | None:
        """All messages, if they differ only in key and value; None when one of them needs handling
        of its own."""
        if not self._alike:
            return None
        try:
            keys = (
                [None] * len(values)
                if self._key is None
                else [as_bytes(self._key(value)) for value in values]
            )
        except RecordError:
            return None
        messages: list[Message] = []
        for record, key, line in zip(records, keys, encoded, strict=True):
            if (
                isinstance(line, RecordError)
                or len(key or b"") + len(line or b"") > self._most_bytes
            ):
                return None
            messages.append(Message(key, line, [], -1, 0, "", record.key, record.timestamp))
        return messages

    def _each(
        self,
        records: Sequence[SinkRecord],
        values: Sequence[Any],
        encoded: Sequence[bytes | RecordError | None],
    ) -> tuple[list[Message], list[Refused]]:
        messages, refused = [], []
        for record, value, line in zip(records, values, encoded, strict=True):
            try:
                if isinstance(line, RecordError):
                    raise line
                messages.append(self._message(record, value, line))
            except RecordError as ex:
                refused.append(Refused(record, str(ex)))
        return messages, refused

    def _encoded(
        self, rows: Sequence[Any], records: Sequence[SinkRecord], backs: Sequence[Retraction | None]
    ) -> Sequence[bytes | RecordError]:
        if self._events is not None:
            of = self._events.encode
            return [
                of(row, back is not None, r.timestamp)
                for row, r, back in zip(rows, records, backs, strict=True)
            ]
        if self._encoder is None:
            return json_lines(rows).splitlines()
        return [self._one(self._encoder, row) for row in rows]

    @staticmethod
    def _one(encoder: MessageEncoder, row: Any) -> bytes | RecordError:
        try:
            return encoder.encode(row)
        except RecordError as ex:
            return ex

    def _message(self, record: SinkRecord, value: Any, line: bytes | None) -> Message:
        key = None if self._key is None else as_bytes(self._key(value))
        size = len(key or b"") + len(line or b"")
        if size > self._most_bytes:
            raise RecordError(
                f"its message has {size} bytes, more than message.max.bytes: {self._most_bytes}"
                " allows; raise it under 'config', and max.message.bytes of the topic"
            )
        headers = [
            (name, as_bytes(of(value)) or b"") for name, of in self._headers if of is not None
        ]
        number, moment, topic = self._number(value), self._moment(record), self._topic_of(value)
        return Message(key, line, headers, number, moment, topic, record.key, record.timestamp)

    def _topic_of(self, value: Any) -> str:
        if self._topic is None:
            return ""
        topic = self._topic(value)
        if topic not in self._topics:  # a missing topic would block all rows behind this one
            names = ", ".join(sorted(self._topics))
            raise RecordError(
                f"`topic: {{by: {self._options.topic_by()}}}` gave {topic!r}, which is not among"
                f" {names}"
            )
        return str(topic)

    def _moment(self, record: SinkRecord) -> int:
        return max(record.timestamp // 1000, 0) if self._options.event_time else 0

    def _number(self, value: Any) -> int:
        if self._partition is None:
            return -1
        number = self._partition(value)
        if type(number) is not int or number < 0:
            raise RecordError(
                f"`partition: {self._options.partition}` gave {number!r}, which is not a partition"
            )
        return number


def as_bytes(value: Any) -> bytes | None:
    """A key or header: text and bytes as they are, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _encode_json(value)


def _readable(value: bytes | None) -> Any:
    """JSON is decoded, other text stays text, the rest stays bytes."""
    if value is None:
        return None
    for read in (msgspec.json.decode, bytes.decode):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return read(value)
    return value


def _evaluator(text: str | None) -> Callable[[Any], Any] | None:
    return None if text is None else expression_of(text).evaluate
