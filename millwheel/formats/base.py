"""The contract of a format: a bundle of messages becomes records, a row becomes a message.

A decoder sees all messages of a read at once, so that it can decode them together. What it finds must not depend on
which messages stand beside each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millwheel.core.model.damage import DAMAGE
from millwheel.errors import RecordError
from millwheel.sources.fields import FieldTypes

if TYPE_CHECKING:
    import polars as pl


class Decoding(NamedTuple):
    """``indexes[i]`` is the number of the message that ``records[i]`` was; ``wrong`` says by number why others are no
    records. A message in neither is passed over."""

    indexes: list[int]
    records: list[Any]
    wrong: dict[int, str]


class MessageDecoder(ABC):
    """Messages to records."""

    changes: bool = False
    """Each record is a list of what one message changes: retractions and values, in order."""
    takes_empty: bool = False
    """No bytes at all may be a record."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes]) -> Decoding:
        """Decode messages. Raises ExhaustedError while a schema cannot be had: nothing was
        decoded then, and it is tried again later."""

    def frame(self, messages: Sequence[bytes]) -> pl.DataFrame | None:
        """The declared fields of all messages at once; None where they must be decoded one by one, as they must when
        any of them is wrong. Raises as :meth:`decode` does."""
        return None

    def with_types(self, fields: Mapping[str, str]) -> MessageDecoder | None:
        """The same for a stream that declares none, with types that were found in records: its :meth:`frame` gives
        these fields, where the messages say themselves that they have them. None: this format does not say so."""
        return None


class MessageEncoder(ABC):
    """Rows to messages."""

    @abstractmethod
    def encode(self, row: Mapping[str, Any]) -> bytes:
        """One row. Raises RecordError, with the field, for one that the format cannot hold."""

    def header(self) -> bytes:
        """What stands before each message when it is sent. Raises UnavailableError while it cannot be had."""
        return b""

    def check(self) -> None:
        """Called by the driver before anything starts. Raises SetupError for a schema that is refused."""
        return


def decode_one_by_one(
    messages: Sequence[bytes], one: Callable[[bytes], Any], damage: tuple[type[Exception], ...] = DAMAGE
) -> Decoding:
    """Each message for itself; what raises ``damage`` or a RecordError is wrong."""
    found = Decoding([], [], {})
    broken: tuple[type[Exception], ...] = (RecordError, *damage)
    for index, message in enumerate(messages):
        try:
            record = one(message)
        except broken as ex:
            found.wrong[index] = str(ex) or f"it is malformed ({type(ex).__name__})"
            continue
        found.indexes.append(index)
        found.records.append(record)
    return found


def checked(found: Decoding, types: FieldTypes) -> Decoding:
    """Without the records whose declared fields are of other types."""
    problems = types.check(found.records) if types and found.records else {}
    if not problems:
        return found
    wrong = found.wrong | {found.indexes[at]: reason for at, reason in problems.items()}
    good = [at for at in range(len(found.records)) if at not in problems]
    return Decoding([found.indexes[at] for at in good], [found.records[at] for at in good], wrong)
