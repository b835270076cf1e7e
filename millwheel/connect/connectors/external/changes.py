"""Records as changes of rows: new rows, retracted rows, and the net change at the end of a
batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.formats.codec import encode_value
from millwheel.core.windows.panes import as_retraction


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that is emitted, or retracted. ``index`` is its number in the batch."""

    index: int
    row: Any
    back: bool
    record: SinkRecord


def changes_of(records: Sequence[SinkRecord]) -> list[RowChange]:
    """One change for each record, in their order."""
    backs = [as_retraction(record.value) for record in records]
    return [
        RowChange(index, record.value if back is None else back.value, back is not None, record)
        for index, (record, back) in enumerate(zip(records, backs, strict=True))
    ]


@dataclass(slots=True)
class RowOutcome:
    """The net change of a batch for one identity. ``row`` is the row at the end. Without one, any
    existing row is removed (``gone``), or only if it is one of ``backs``."""

    row: RowChange | None = None
    gone: bool = False
    backs: tuple[RowChange, ...] = ()


def same_row(one: Any, other: Any) -> bool:
    """Whether two rows are equal; NaN counts as equal to itself."""
    return bool(one == other) or encode_value(one) == encode_value(other)


def outcomes(
    changes: Iterable[RowChange],
    identity: Callable[[RowChange], Hashable],
    same: Callable[[Any, Any], bool] = same_row,
) -> dict[Hashable, RowOutcome]:
    """By identity, in the order in which each first appeared. A retraction removes a row only if it
    is still the current one; a row that has replaced it stays."""
    by_identity: dict[Hashable, RowOutcome] = {}
    for change in changes:
        outcome = by_identity.setdefault(identity(change), RowOutcome())
        if not change.back:
            outcome.row, outcome.gone, outcome.backs = change, False, ()
        elif outcome.row is None:
            outcome.backs = () if outcome.gone else (*outcome.backs, change)
        # Another row that has replaced it stays: panes of two windows may share an identity
        # (test_a_row_that_was_replaced_is_not_taken_back).
        elif same(outcome.row.row, change.row):
            outcome.row, outcome.gone = None, True
    return by_identity
