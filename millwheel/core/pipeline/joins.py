"""Joins: the pairs of one window and key, and which version of a key a record may see. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.core.model.records import Record
from millwheel.core.pipeline.work import JoinKind


def pairs(records: Sequence[Record], left: str, kind: JoinKind) -> Iterator[tuple[Any, Any]]:
    """(value of the left stream, value of the other) for every two records of a window, in their
    order; None in the place of a partner that there is not."""
    lefts = [record.value for record in records if record.stream == left]
    return pairs_of(lefts, [record.value for record in records if record.stream != left], kind)


def pairs_of(
    lefts: Sequence[Any], rights: Sequence[Any], kind: JoinKind
) -> Iterator[tuple[Any, Any]]:
    """:func:`pairs` of the values of either stream. Those of the left one alone, if there are no
    pairs in the result."""
    first_alone, second_alone = kind.without_partner
    if kind.in_pairs:
        yield from ((one, other) for one in lefts for other in rights)
    if (first_alone and not rights) or (kind is JoinKind.SEMI and rights):
        yield from ((one, None) for one in lefts)
    if second_alone and not lefts:
        yield from ((None, other) for other in rights)


@dataclass(frozen=True, slots=True)
class WindowSide:
    """The values of one stream in a window: those that it has fired with, and those that have come
    since."""

    old: Sequence[Any]
    new: Sequence[Any]

    @property
    def all(self) -> list[Any]:
        """All of them."""
        return [*self.old, *self.new]


def partners_found(
    lefts: WindowSide, rights: WindowSide, kind: JoinKind
) -> Iterator[tuple[Any, Any]]:
    """The results that do not hold any more: of values that stood alone when the window fired, and
    have partners since."""
    first_alone, second_alone = kind.without_partner
    if first_alone and rights.new and not rights.old:
        yield from ((one, None) for one in lefts.old)
    if second_alone and lefts.new and not lefts.old:
        yield from ((None, other) for other in rights.old)


def pairs_since(lefts: WindowSide, rights: WindowSide, kind: JoinKind) -> Iterator[tuple[Any, Any]]:
    """The results that have come since a window fired: with those that it emitted, and without
    those of :func:`partners_found`, they are :func:`pairs_of` all values."""
    if kind.in_pairs:
        yield from ((one, other) for one in lefts.old for other in rights.new)
    elif kind is JoinKind.SEMI and rights.new and not rights.old:
        yield from ((one, None) for one in lefts.old)
    if lefts.new:
        yield from pairs_of(lefts.new, rights.all, kind)
    elif kind.without_partner[1] and not lefts.old:
        yield from ((None, other) for other in rights.new)


class Version(msgspec.Struct, array_like=True):
    """The value of a key from a time (µs) on. ``position``: that of its record in the source, where
    versions do not come in order."""

    at: int
    value: Any
    position: tuple[str, int] | None = None


def newer(at: int, version: Version | None, position: tuple[str, int] | None = None) -> bool:
    """True if a value of the time ``at`` replaces a version. Of several values with one time the
    last to arrive counts, or the one with the highest position."""
    if version is None or version.at != at or position is None or version.position is None:
        return version is None or version.at <= at
    return version.position <= position


def known(version: Version | None, at: int | None) -> Any:
    """The value of its key for a record of the time ``at``: never a later one. None gets the newest
    value."""
    if version is None or (at is not None and version.at > at):
        return None
    return version.value
