"""The rows of a batch as operations of the script in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from millwheel.connect.connectors.external.changes import (
    RowChange,
    RowOutcome,
    changes_of,
    outcomes,
)
from millwheel.connect.connectors.redis.sink_options import WINDOW, RedisKind, RedisSinkOptions
from millwheel.connect.connectors.redis.templates import template
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import SinkRecord, flush_us
from millwheel.errors import RecordError

_START, _END = "window_start", "window_end"
_LONGEST_US = 2**62  # Redis adds the time of day, in ms, and the sum must fit into 64 bits


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the script on ``key``: ``words`` are its name in the script and its
    arguments. ``indexes`` are the records of the batch from which it comes."""

    key: str
    words: tuple[str, ...]
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change with its identity in Redis."""

    change: RowChange
    key: str
    member: str


class RedisRows:
    """Makes operations of records."""

    def __init__(self, options: RedisSinkOptions) -> None:
        self._kind = RedisKind(options.kind)
        self._key = template(options.key)
        self._member = None if options.member is None else template(options.member)
        self._value = None if options.value is None else expression_of(options.value).evaluate
        self._score = None if options.score is None else expression_of(options.score).evaluate
        self._fields = options.fields
        self._expire = options.expire
        self._expire_ms = (
            0
            if options.expire in (None, WINDOW)
            else max(1, flush_us(options.expire or 0) // 1_000)
        )

    def operations(self, records: Sequence[SinkRecord]) -> tuple[list[Operation], dict[int, str]]:
        """The operations of the records, and the errors of records without one, by index."""
        sound: list[_Change] = []
        refused: dict[int, str] = {}
        for change in changes_of(records):
            try:
                sound.append(self._sound(change))
            except RecordError as ex:
                refused[change.index] = str(ex)
        if self._kind is RedisKind.PUBSUB:
            return [self._message(each) for each in sound], refused
        return self._of_rows(sound), refused

    def _sound(self, change: RowChange) -> _Change:
        if self._kind is RedisKind.PUBSUB and change.back:
            raise RecordError("a message that was sent cannot be taken back")
        member = "" if self._member is None else self._member.of(change.row)
        change_of_row = _Change(change, self._key.of(change.row), member)
        self._words(change.row)
        return change_of_row

    def _of_rows(self, sound: Sequence[_Change]) -> list[Operation]:
        by_index = {each.change.index: (each.key, each.member) for each in sound}
        indexes: dict[Any, tuple[int, ...]] = {}
        for index, identity in by_index.items():
            indexes[identity] = (*indexes.get(identity, ()), index)
        by_identity = outcomes(
            [each.change for each in sound], lambda change: by_index[change.index]
        )
        operations: list[Operation] = []
        for named, outcome in by_identity.items():
            identity = key, member = cast("tuple[str, str]", named)
            operations += [
                Operation(key, words, indexes[identity])
                for words in self._of_outcome(outcome, member)
            ]
        return operations

    def _of_outcome(self, outcome: RowOutcome, member: str) -> list[tuple[str, ...]]:
        if outcome.row is not None:
            name, *words = self._words(outcome.row.row)
            return [(name, self._ttl(outcome.row.row), *words)]
        if outcome.gone:
            return [("rem", member) if self._kind is RedisKind.SORTED_SET else ("drop",)]
        # A retracted row goes only if it is still the current one: another may have replaced it.
        return [
            (f"{name}_back", *words)
            for name, *words in (self._words(back.row) for back in outcome.backs)
        ]

    def _message(self, each: _Change) -> Operation:
        return Operation(each.key, ("say", self._text(each.change.row)), (each.change.index,))

    def _words(self, row: Any) -> tuple[str, ...]:
        """The words that write a row. Raises RecordError for a row that cannot be written."""
        self._ttl(row)
        if self._kind is RedisKind.HASH:
            return ("hash", *self._hash(row))
        if self._kind is RedisKind.SORTED_SET:
            assert self._member is not None
            return ("add", self._score_of(row), self._member.of(row))
        return ("set", self._text(row))

    def _hash(self, row: Any) -> list[str]:
        if not isinstance(row, Mapping):
            raise RecordError(
                f"a hash has fields, and a {type(row).__name__} has none; write kind: string"
            )
        chosen = row if not self._fields else {name: row.get(name) for name in self._fields}
        words = [
            word
            for name, value in chosen.items()
            if value is not None
            for word in (str(name), _plain(value))
        ]
        if not words:
            raise RecordError(
                "Redis keeps no hash without fields, and all fields of this row are null or missing"
            )
        return words

    def _text(self, row: Any) -> str:
        return _plain(row if self._value is None else self._value(row))

    def _score_of(self, row: Any) -> str:
        assert self._score is not None
        score = self._score(row)
        if not isinstance(score, (int, float)) or isinstance(score, bool) or score != score:
            raise RecordError(f"the score is {score!r}, and Redis takes numbers")
        if isinstance(score, int) and not _is_double(score):
            raise RecordError(
                f"the score {str(score)[:40]} has more digits than Redis keeps: 53 bits"
            )
        return repr(score)

    def _ttl(self, row: Any) -> str:
        if self._expire != WINDOW:
            return str(self._expire_ms)
        start, end = (
            row.get(name) if isinstance(row, Mapping) else None for name in (_START, _END)
        )
        if not isinstance(start, int) or not isinstance(end, int) or end <= start:
            raise RecordError(
                f"expire: window needs the fields {_START} and {_END} (µs), which the row does not"
                " have"
            )
        if end - start > _LONGEST_US:
            raise RecordError(
                f"expire: window would keep the key for {(end - start) // 1_000} ms, which Redis"
                " refuses"
            )
        return str(-((start - end) // 1_000))


def _is_double(number: int) -> bool:
    """Whether a whole number is one of the floating-point numbers of 64 bits."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _plain(value: Any) -> str:
    """A value as text: text as it is, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
