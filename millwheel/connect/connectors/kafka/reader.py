"""Reads one partition of a topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.connect.connectors.kafka.consumer import Consuming, Polled, TopicShare
from millwheel.connect.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.connect.formats.base import Decoding, MessageDecoder
from millwheel.connect.sources.base import Chunk, FrameChunk, Reader, Reject
from millwheel.connect.sources.files.lines import raw_text
from millwheel.core.rows.latest import DELETED_FIELD
from millwheel.core.tracing import (
    NOT_SAMPLED,
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    context_of,
    declines,
)
from millwheel.errors import RecordError, SetupError

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger("millwheel.kafka")
_START = msgspec.msgpack.Encoder()
_NO_TIME = -1  # Fixed: the timestamp of a message without one
_LEAST = 16  # messages of one read, however large they are
_MOST = 100_000  # messages of one read, however small they are


@dataclass(frozen=True, slots=True)
class Extras:
    """Names of the fields for the other parts of a message: its key (text, or bytes if it is not
    UTF-8), its timestamp (ms), its headers (a map; the last one of a name counts)."""

    key: str | None
    timestamp: str | None
    headers: str | None

    def __bool__(self) -> bool:
        return any((self.key, self.timestamp, self.headers))

    def add(self, value: dict[str, Any], message: Any) -> None:
        """Put them into a value."""
        if self.key is not None:
            value[self.key] = _text(message.key())
        if self.timestamp is not None:
            moment = message.timestamp()[1]
            value[self.timestamp] = None if moment == _NO_TIME else moment
        if self.headers is not None:
            value[self.headers] = {name: _text(header) for name, header in message.headers() or ()}


@dataclass(frozen=True, slots=True)
class Forms:
    """How values become records: ``rows`` decodes them, into ``schema`` if there is one;
    ``columns`` decodes them if the stream declares ``fields``. ``guesses``: without declared
    fields, types inferred from records may be used. ``whole`` makes a decoder that refuses messages
    with other fields than those of some types."""

    rows: MessageDecoder
    schema: type | None
    extras: Extras
    columns: MessageDecoder | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    guesses: bool = False
    whole: Callable[[Mapping[str, str]], MessageDecoder] | None = None


@dataclass(slots=True)
class _Typed:
    """Columns of undeclared ``fields``, by a ``decoder`` for their inferred types; or, with the
    names of the ``guessed`` fields, of all fields of whole records. ``kept``: messages that
    could not be read as columns, and their position; they are not fetched again."""

    decoder: MessageDecoder | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    guessed: Collection[str] | None = None
    kept: tuple[int, Polled] | None = None

    def frame(self, values: list[bytes]) -> tuple[None, pl.DataFrame, dict[int, str]] | None:
        """As :func:`_frame`. None where a message has other types, or lacks one of the fields: then
        it is decoded as rows."""
        from millwheel.core.columns.declared_fields import frame_of

        assert self.decoder is not None
        if not values:
            return None, frame_of([], self.fields), {}
        if self.guessed is not None:
            return self._whole(values, self.guessed)
        frame = self.decoder.frame(values)
        return None if frame is None or _lacks(frame) else (None, frame, {})

    def _whole(
        self, values: list[bytes], guessed: Collection[str]
    ) -> tuple[None, pl.DataFrame, dict[int, str]] | None:
        from millwheel.core.columns.declared_fields import are_exact, frame_of

        assert self.decoder is not None
        _, rows, wrong = self.decoder.decode(values)
        if wrong or (guessed and not are_exact(rows, self.fields, guessed)):
            return None
        try:
            frame = frame_of(rows, self.fields)
        except RecordError:  # a field that is not a time
            return None
        return None if _lacks(frame) else (None, frame, {})

    def take(self, position: int, most: int) -> Polled | None:
        """The first kept messages, if they begin at ``position``."""
        kept, self.kept = self.kept, None
        if kept is None or kept[0] != position:
            return None
        polled = kept[1]
        if len(polled.messages) <= most:
            return polled
        next_offset = polled.messages[most - 1].offset() + 1
        self.kept = next_offset, Polled(polled.messages[most:], polled.next_offset, polled.at_end)
        return Polled(polled.messages[:most], next_offset, False)


class KafkaReader(Reader):
    """One partition of a topic. ``start`` (-1: the oldest message) counts at position 0 only;
    ``end`` is the first offset that is not read (None: there is no end)."""

    def __init__(
        self,
        consuming: Consuming,
        share: TopicShare,
        options: KafkaSourceOptions,
        forms: Forms,
        start: int = -1,
        end: int | None = None,
    ) -> None:
        self._consuming = consuming
        self._share = share
        self._options = options
        self._forms = forms
        self._start = start
        self._end = end
        self._ends = end is not None
        self._decided = start < 0 or end is not None
        self._bytes = 200.0
        self._lost: list[Reject] = []
        self._traces = False
        self._typed = _Typed()

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`. The only decision is where the
        partition begins."""
        for position, note in notes[1:]:
            if position == 0:
                self._start, self._decided = msgspec.msgpack.decode(note), True

    def stop_at(self, end: tuple[int, ...]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`. Another reader may continue beyond
        it."""
        self._end = end[1]

    def reached(self, position: int) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`: not before the broker has reported
        its end."""
        return self._end is None or position >= self._end

    def tell_traces(self) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        self._traces = True

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if position == 0 and not self._decided:
            self._decided = True
            return Chunk([], [], 0, begins=(0, _START.encode(self._start)))
        polled = self._take(position, max_records)
        chunk = Chunk([], [], polled.next_offset, caught_up=polled.at_end)
        self._sort(polled.messages, chunk)
        chunk.finished = self._ended(polled)
        chunk.traces = self._contexts(polled.messages)
        return chunk

    def skip(self, position: int) -> Chunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        polled = self._take(position, 1)
        rejects = self._take_lost() + [self._reject(message, "") for message in polled.messages]
        return Chunk(
            [], [], polled.next_offset, rejects, self._ended(polled), caught_up=polled.at_end
        )

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        form = self._typed.decoder or self._forms.columns
        if form is None or (position == 0 and not self._decided):
            return None
        polled = self._take(position, min(max(int(max_bytes / self._bytes), _LEAST), _MOST))
        whole, values, empty = _apart(polled.messages, self._forms.rows.takes_empty)
        decoded = (
            _frame(form, values, self._forms.fields)
            if self._typed.decoder is None
            else self._typed.frame(values)
        )
        if decoded is None:
            self._typed.kept = position, polled
            return None
        indexes, frame, wrong = decoded
        offsets = _offsets(whole) + 1
        rejects = self._take_lost() + self._empty_ones(empty)
        rejects += [self._reject(whole[index], reason) for index, reason in wrong.items()]
        rejects.sort(key=lambda reject: reject.position)
        if values:
            self._bytes = max(sum(map(len, values)) / len(values), 1.0)
        positions = offsets if indexes is None else offsets[indexes]
        traces = self._contexts(polled.messages)
        return FrameChunk(
            positions, frame, polled.next_offset, rejects, self._ended(polled), traces=traces
        )

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`: where the schema that each message
        names has these types."""
        self._typed.fields = fields
        self._typed.decoder = self._forms.rows.with_types(fields) if self._forms.guesses else None
        return self._typed.decoder is not None

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`: where messages are JSON."""
        if self._forms.whole is None:
            return False
        self._typed.decoder = self._forms.whole(fields)
        self._typed.fields = {**fields, **self._forms.fields}
        self._typed.guessed = fields.keys() - self._forms.fields.keys()
        return True

    def close(self) -> None:
        self._consuming.leave(self._share)

    def _contexts(self, messages: list[Any]) -> dict[int, TraceContext] | None:
        return _contexts(messages) if self._traces and messages else None

    # --- messages ---------------------------------------------------------------------------------

    def _take(self, position: int, most: int) -> Polled:
        if (cached := self._typed.take(position, most)) is not None:
            return cached
        if self._end is not None and position >= self._end:
            return Polled([], position, True)
        offset = self._start if position == 0 and self._start > 0 else position
        polled = self._consuming.take(self._share, offset, most)
        if polled.gone:
            polled = Polled([], self._behind_the_gap(offset), False)
        if self._end is not None and polled.next_offset > self._end:
            return Polled(
                [each for each in polled.messages if each.offset() < self._end], self._end, True
            )
        return polled

    def _behind_the_gap(self, offset: int) -> int:
        """The offset behind a gap where reading continues, never before ``offset``. Raises
        SetupError where gaps are not allowed."""
        topic, number = self._share
        where = f"topic {topic}, partition {number}"
        oldest, end = self._consuming.bounds(self._share)
        oldest = oldest if self._end is None else min(oldest, self._end)
        if offset > end:
            raise SetupError(
                f"{where}: it ends at offset {end}, and was read to {offset} already, so it is not"
                " the topic it was: it was deleted and created again, or brokers have lost"
                " messages. Read it with a new --root"
            )
        if oldest <= offset:  # the answer is newer than the error
            return offset
        if self._options.on_gap == "stop":
            raise SetupError(
                f"{where}: Kafka has no offset {offset} any more: its retention has taken what was"
                " not read yet. Write on_gap: continue to go on with the oldest message there is"
                f" ({oldest}), and keep messages for longer"
            )
        # A dead letter makes the gap a number that is seen; a warning in the log of one of many
        # workers is not.
        gap = (
            f"{where}: offsets {offset} to {oldest - 1} are gone: retention has taken them before"
            " they were read"
        )
        log.warning("%s. Reading goes on with the oldest message there is", gap)
        self._lost.append(Reject(oldest, "", gap))
        return oldest

    def _ended(self, polled: Polled) -> bool:
        return self._ends and self._end is not None and polled.next_offset >= self._end

    # --- values -----------------------------------------------------------------------------------

    def _sort(self, messages: list[Any], chunk: Chunk) -> None:
        whole, encoded, empty = _apart(messages, self._forms.rows.takes_empty)
        chunk.rejects += self._take_lost() + self._empty_ones(empty)
        records = [(each, {DELETED_FIELD: True}) for each in self._deleting(empty)]
        if whole:
            indexes, values, wrong = self._decoded(whole, encoded)
            chunk.rejects += [self._reject(whole[index], reason) for index, reason in wrong.items()]
            decoded = zip(indexes, values, strict=True)
            records += [(whole[index], value) for index, value in decoded]
        if empty:
            records.sort(key=lambda record: record[0].offset())
        for message, value in records:
            self._keep(message, value, chunk)
        chunk.rejects.sort(key=lambda reject: reject.position)

    def _decoded(self, messages: list[Any], encoded: list[bytes]) -> Decoding:
        rows = self._forms.rows
        if not rows.changes:
            return rows.decode(encoded)
        topic, number = self._share
        return rows.decode_changes(
            encoded, [message.key() for message in messages], f"{topic}/{number}"
        )

    def _keep(self, message: Any, value: Any, chunk: Chunk) -> None:
        if self._forms.extras:
            for record in value if self._forms.rows.changes else (value,):
                self._forms.extras.add(record, message)
        if self._forms.schema is not None and not _is_tombstone(value):
            try:
                value = msgspec.convert(value, self._forms.schema)
            except msgspec.ValidationError as ex:
                chunk.rejects.append(self._reject(message, str(ex)))
                return
        chunk.positions.append(message.offset() + 1)
        chunk.values.append(value)

    def _take_lost(self) -> list[Reject]:
        lost, self._lost = self._lost, []
        return lost

    def _deleting(self, empty: list[Any]) -> list[Any]:
        """The messages that delete a row."""
        deletes = self._options.tombstones == "delete"
        return [each for each in empty if each.value() is None] if deletes else []

    def _empty_ones(self, empty: list[Any]) -> list[Reject]:
        if self._options.skips_tombstones() or self._options.tombstones == "delete":
            empty = [message for message in empty if message.value() is not None]
        return [
            self._reject(
                message,
                (
                    "it has no value (a tombstone)"
                    if message.value() is None
                    else "its value is empty"
                ),
            )
            for message in empty
        ]

    def _reject(self, message: Any, reason: str) -> Reject:
        topic, number = self._share
        where = f"topic {topic}, partition {number}, offset {message.offset()}"
        return Reject(message.offset() + 1, _shown(message.value()), f"{where}: {reason}")


def _is_tombstone(value: Any) -> bool:
    return isinstance(value, dict) and DELETED_FIELD in value


def _shown(value: bytes | None) -> str:
    return "" if value is None else raw_text(value)


def _frame(
    form: MessageDecoder, values: list[bytes], fields: Mapping[str, str]
) -> tuple[list[int] | None, pl.DataFrame, dict[int, str]] | None:
    """The indexes of valid values (None: all), their declared fields as columns, and the errors of
    the others. None where a field is not a time: then they are decoded as rows."""
    from millwheel.core.columns.declared_fields import frame_of

    frame = form.frame(values) if values else None
    if frame is not None:
        return None, frame, {}
    indexes, rows, wrong = form.decode(values) if values else ([], [], {})
    try:
        frame = frame_of(rows, fields)
    except RecordError:
        return None
    return indexes if wrong or len(indexes) < len(values) else None, frame, wrong


def _lacks(frame: pl.DataFrame) -> bool:
    """Whether a record has null in a field, or lacks it."""
    return any(frame.null_count().row(0))


def _offsets(messages: list[Any]) -> npt.NDArray[np.int64]:
    count = len(messages)
    return np.fromiter(map(type(messages[0]).offset, messages) if messages else (), np.int64, count)


def _contexts(messages: list[Any]) -> dict[int, TraceContext]:
    """The trace contexts in the headers of messages, by position."""
    contexts: dict[int, TraceContext] = {}
    every = list(map(type(messages[0]).headers, messages))
    if not any(every):
        return contexts
    for message, headers in zip(messages, every, strict=True):
        if headers:
            named = dict(headers)
            parent = named.get(TRACEPARENT)
            if parent is None:
                continue
            context = NOT_SAMPLED if declines(parent) else context_of(parent, named.get(TRACESTATE))
            if context is not None:
                contexts[message.offset() + 1] = context
    return contexts


def _apart(messages: list[Any], takes_empty: bool) -> tuple[list[Any], list[bytes], list[Any]]:
    """(Messages with a value, their values, the others). An empty value counts if
    ``takes_empty``."""
    # The method of the type: to look it up on each message takes three times as long as to call it.
    values = list(map(type(messages[0]).value, messages)) if messages else []
    if all(values):
        return messages, values, []
    holds = [value is not None if takes_empty else bool(value) for value in values]
    whole = [message for message, there in zip(messages, holds, strict=True) if there]
    empty = [message for message, there in zip(messages, holds, strict=True) if not there]
    return whole, [value for value, there in zip(values, holds, strict=True) if there], empty


def _text(value: bytes | str | None) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
