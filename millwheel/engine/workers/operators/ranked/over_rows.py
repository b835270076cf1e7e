"""The records that look-backs keep: those that wait, and those that have been taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.state.stored_types import Certain

_SHORT = frozenset({int, float, bool, type(None)})


class OverRow(Certain, array_like=True):
    """A record: its time, its position among those of its time (the number of its stream, and the
    position in a source), the arguments of the aggregates, a bit for each aggregate that leaves it
    out, and the record without the fields that it will get."""

    at: int
    stream: int
    channel: str
    number: int
    arguments: list[Any]
    left_out: int
    data: bytes


class PastRow(Certain, array_like=True):
    """The part of a record that later results need. ``size``: its bytes, if they may be many."""

    at: int
    arguments: list[Any]
    left_out: int
    size: int


class OverRows(Certain, array_like=True):
    """The records of a segment, in the order of their times."""

    rows: list[OverRow]


class PastRows(Certain, array_like=True):
    """The records of a block, in the order in which they were taken."""

    rows: list[PastRow]


class WaitingRows(Certain, array_like=True):
    """The summary of a segment of waiting records: the time of the first one that waits, and how
    many of them have come."""

    first: int
    taken: int
    count: int


class PastBlock(Certain, array_like=True):
    """The summary of a block of records that have been taken."""

    count: int
    first: int
    last: int


class OverGroup(Certain, array_like=True):
    """The state of a group: the records that wait; those that have been taken, some of whose first
    block have ``gone``; the time of the last one; and that of its timer."""

    waiting: list[OverRow] = msgspec.field(default_factory=list)
    segments: dict[int, WaitingRows] = msgspec.field(default_factory=dict)
    rows: list[PastRow] = msgspec.field(default_factory=list)
    blocks: dict[int, PastBlock] = msgspec.field(default_factory=dict)
    gone: int = 0
    number: int = 0
    last_us: int = MIN_TIME
    wakes_us: int = MAX_TIME

    @property
    def begun(self) -> bool:
        """Whether records have been taken that later ones may have in their look-back."""
        return self.last_us > MIN_TIME


def size_of(row: OverRow) -> int:
    """The bytes of a record that waits, mostly."""
    return len(row.data) + bytes_of(row.arguments)


def bytes_of(arguments: list[Any]) -> int:
    """The bytes of arguments, 0 where they are numbers alone."""
    if _SHORT.issuperset(map(type, arguments)):
        return 0
    return len(encode_value(arguments))


def parts(rows: list[Any], sizes: Sequence[int], most: int, most_bytes: int) -> Iterator[list[Any]]:
    """Some rows at a time: ``most`` of them at most, and not more bytes than one entry should
    have."""
    part: list[Any] = []
    total = 0
    for row, size in zip(rows, sizes, strict=True):
        if part and (len(part) == most or total + size > most_bytes):
            yield part
            part, total = [], 0
        part.append(row)
        total += size
    if part:
        yield part
