"""Joins: the results of one window and key, and the version of a key for a record. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import msgspec

from millwheel.core.pipeline.work import JoinKind


@dataclass(frozen=True, slots=True)
class WindowSide:
    """The values of one stream in a window that has fired: those that have ``gone`` since, those
    that ``stay``, and new ones that have ``come``."""

    gone: Sequence[Any]
    stay: Sequence[Any]
    come: Sequence[Any]


Products = list[list[Sequence[Any]]]
"""Each product stands for all tuples of one item of each of its factors, which are not empty."""


def combinations(sides: Sequence[Sequence[Any]], kind: JoinKind) -> Iterator[tuple[Any, ...]]:
    """One value of each stream, for all values of a window, in their order; None for a missing
    partner. If there are no pairs in the result, None stands for the other stream."""
    return tuples(come_since([WindowSide((), (), side) for side in sides], kind))


def gone_since(sides: Sequence[WindowSide], kind: JoinKind) -> Products:
    """The results of a window that have stopped to hold since it fired."""
    if not any(side.gone or side.stay for side in sides):
        return []
    factors = _factors(sides, kind)
    return _with_one_of(
        [each.gone for each in factors],
        [each.stay for each in factors],
        [[*each.gone, *each.stay] for each in factors],
    )


def come_since(sides: Sequence[WindowSide], kind: JoinKind) -> Products:
    """The results that hold since then. The window's earlier results, without :func:`gone_since`,
    and these are the :func:`combinations` of all values."""
    if not any(side.stay or side.come for side in sides):
        return []
    factors = _factors(sides, kind)
    return _with_one_of(
        [each.come for each in factors],
        [each.stay for each in factors],
        [[*each.stay, *each.come] for each in factors],
    )


def tuples(products: Products, start: int = 0) -> Iterator[tuple[Any, ...]]:
    """All tuples of products, from the one with this number on."""
    for factors in products:
        size = prod(map(len, factors))
        if start < size:
            yield from tuples_of(factors, start)
        start = max(start - size, 0)


def tuples_of(factors: Sequence[Sequence[Any]], start: int) -> Iterator[tuple[Any, ...]]:
    """The tuples of one item of each, in the order of :func:`itertools.product`, from the one with
    this number on."""
    sizes = [len(each) for each in factors]
    if start >= prod(sizes):
        return
    if not start:
        yield from product(*factors)
        return
    head, rest = factors[0], factors[1:]
    first, start = divmod(start, prod(sizes[1:]))
    for each in tuples_of(rest, start):
        yield (head[first], *each)
    yield from product(head[first + 1 :], *rest)


def _with_one_of(
    these: Sequence[Sequence[Any]], before: Sequence[Sequence[Any]], behind: Sequence[Sequence[Any]]
) -> Products:
    """All tuples with at least one item of ``these``: its first one at each index in turn, with
    items of ``before`` and ``behind`` at the others."""
    all_of_them = ([*before[:index], own, *behind[index + 1 :]] for index, own in enumerate(these))
    return [factors for factors in all_of_them if all(factors)]


def _factors(sides: Sequence[WindowSide], kind: JoinKind) -> list[WindowSide]:
    """The parts of the results by stream: its values, or a null where there is none."""
    missing = kind.missing(len(sides))
    factors = []
    for number, side in enumerate(sides):
        had, has = bool(side.gone or side.stay), bool(side.stay or side.come)
        if kind is JoinKind.SEMI and number:
            stood, stands = had, has
        else:
            stood, stands = missing[number] and not had, missing[number] and not has
        if not kind.in_pairs and number:
            side = WindowSide((), (), ())
        factors.append(_with_null(side, stood, stands))
    return factors


def _with_null(side: WindowSide, stood: bool, stands: bool) -> WindowSide:
    if not stood and not stands:
        return side
    return WindowSide(
        side.gone if stands or not stood else [*side.gone, None],
        [*side.stay, None] if stood and stands else side.stay,
        [*side.come, None] if stands and not stood else side.come,
    )


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


def value_at(version: Version | None, at: int | None) -> Any:
    """The value of its key for a record of the time ``at``, never a later one; for None the newest
    value."""
    if version is None or (at is not None and version.at > at):
        return None
    return version.value
