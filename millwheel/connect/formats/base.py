"""The contract of a format: a bundle of messages becomes records, a row becomes a message.

A decoder gets all messages of a read at once, so that it can decode them together. The result for a
message must not depend on its neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import RecordError

if TYPE_CHECKING:
    import polars as pl


class Decoding(NamedTuple):
    """``records[i]`` comes from the message number ``indexes[i]``; ``wrong`` has the errors of
    invalid messages, by number. A message in neither is skipped."""

    indexes: list[int]
    records: list[Any]
    wrong: dict[int, str]


class MessageDecoder(ABC):
    """Messages to records."""

    changes: bool = False
    """True: each record is the list of changes in one message, retractions and values, in order."""
    takes_empty: bool = False
    """True: an empty message may be a record."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes]) -> Decoding:
        """Decode messages. Raises ExhaustedError while a schema is unavailable: nothing has been
        decoded then, and the call is retried later."""

    def decode_changes(
        self, messages: Sequence[bytes], keys: Sequence[bytes | None], partition: str = ""
    ) -> Decoding:
        """As :meth:`decode`, where :attr:`changes` is True; ``keys`` are those of the messages,
        ``partition`` is the partition that they come from."""
        return self.decode(messages)

    def frame(self, messages: Sequence[bytes]) -> pl.DataFrame | None:
        """The declared fields of all messages at once. None where they must be decoded one by one,
        for example because one of them is invalid. Raises as :meth:`decode`."""
        return None

    def with_types(self, fields: Mapping[str, str]) -> MessageDecoder | None:
        """The same decoder for a stream without declared fields, with types inferred from records:
        its :meth:`frame` returns these fields where the messages themselves carry their types.
        None: this format does not carry them."""
        return None


class MessageEncoder(ABC):
    """Rows to messages."""

    @abstractmethod
    def encode(self, row: Mapping[str, Any]) -> bytes:
        """One row. Raises RecordError, with the field, for one that the format cannot hold."""

    def header(self) -> bytes:
        """The bytes in front of each message. Raises UnavailableError while they cannot be
        determined."""
        return b""

    def check(self) -> None:
        """Called by the driver before anything starts. Raises SetupError if the schema is
        refused."""
        return


def decode_one_by_one(
    messages: Sequence[bytes],
    one: Callable[[bytes], Any],
    damage: tuple[type[Exception], ...] = DAMAGE,
) -> Decoding:
    """Decode each message by itself; messages for which ``one`` raises ``damage`` or a RecordError
    are invalid."""
    decoding = Decoding([], [], {})
    broken: tuple[type[Exception], ...] = (RecordError, *damage)
    for index, message in enumerate(messages):
        try:
            record = one(message)
        except broken as ex:
            decoding.wrong[index] = str(ex) or f"it is malformed ({type(ex).__name__})"
            continue
        decoding.indexes.append(index)
        decoding.records.append(record)
    return decoding


def checked(decoding: Decoding, types: FieldTypes) -> Decoding:
    """Move records whose declared fields have other types to the errors."""
    problems = types.check(decoding.records) if types and decoding.records else {}
    if not problems:
        return decoding
    wrong = decoding.wrong | {decoding.indexes[at]: reason for at, reason in problems.items()}
    good = [at for at in range(len(decoding.records)) if at not in problems]
    return Decoding(
        [decoding.indexes[at] for at in good], [decoding.records[at] for at in good], wrong
    )
