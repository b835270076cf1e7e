"""Windowed joins: the pairs of one window and key. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from millwheel.core.records import Record
from millwheel.core.spec import JoinKind


def pairs(records: Sequence[Record], left: str, kind: JoinKind) -> Iterator[tuple[Any, Any]]:
    """(value of the left stream, value of the other) for every two records of a window, in their order; None in the
    place of a partner that there is not."""
    lefts = [record.value for record in records if record.stream == left]
    rights = [record.value for record in records if record.stream != left]
    for one in lefts:
        for other in rights:
            yield one, other
        if not rights and kind is not JoinKind.INNER:
            yield one, None
    if not lefts and kind is JoinKind.OUTER:
        for other in rights:
            yield None, other
