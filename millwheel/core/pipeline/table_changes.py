"""The rows of a table after its change events, although events repeat, and rows are read again.

A connector of a database delivers at least once: after a crash it sends its last events again, and
a snapshot repeats rows. So a :class:`ChangePart` is an instruction to a table, never a row to
count: the table keeps the row of each key with the position of its last event, and emits how the
row has changed.

An event is left out only if it is certainly old: its position is not behind that of an event of the
same log for the same key, and the database did not commit it later. Positions begin anew where a
database moves to another server; to take them alone would then freeze the table in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any

import msgspec
import xxhash

from millwheel.core.formats.codec import decode_value, encode_value

KEY_FIELD = "__key__"
"""The field of a change with the identity of its row."""
CHANGE_FIELD = "__change__"
"""The field of a change with its :class:`ChangePart`."""
_in_order = msgspec.msgpack.Encoder(order="deterministic").encode


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """The position of an event in the log of its database. ``numbers`` compare within one ``line``
    ("" where there are none), ``at_ms`` is the time of its commit by the clock of the database."""

    line: str = ""
    numbers: tuple[int | str, ...] = ()
    at_ms: int | None = None

    def is_old(self, seen: LogPosition | None) -> bool:
        """Whether it is certainly not behind ``seen``, the position of an event of the same row."""
        if seen is None:
            return False
        times = (
            (self.at_ms, seen.at_ms)
            if self.at_ms is not None and seen.at_ms is not None
            else (0, 0)
        )
        if self.line and self.line == seen.line:
            return self.numbers <= seen.numbers and times[0] <= times[1]
        return not self.line and not seen.line and times[0] < times[1]


class IdentifiedBy(IntEnum):
    """The part of a change event that identifies its row."""

    KEY = 0
    """The primary key, or its substitute."""
    ROW = 1
    """The whole row: its table has no key. Equal rows are counted."""
    NOTHING = 2
    """The event names neither its table nor its row: both rows are taken as they are."""


class ChangePart(msgspec.Struct, frozen=True, array_like=True):
    """One part of a change event: the row that goes (``back``), or the row that stands from now on.
    ``reread``: a snapshot has read it, which does not make earlier events old."""

    back: bool
    reread: bool
    identified_by: IdentifiedBy
    position: LogPosition


class Kept(msgspec.Struct, array_like=True):
    """The state of a table for a key: the number of rows (0 or 1, where there is a key), the last
    row as it is encoded, the positions of the last event of the log and of the last snapshot, and
    whether that event took a row away. It stays when the row has gone: an old insert may come
    again."""

    count: int = 0
    row: bytes | None = None
    seen: LogPosition | None = None
    last_back: bool = False
    read: LogPosition | None = None


class TableOutcome(msgspec.Struct, frozen=True):
    """The effect of a change on a key: rows that are taken back and rows that are new; ``repeated``
    if the change is old."""

    gone: tuple[dict[str, Any], ...] = ()
    new: tuple[dict[str, Any], ...] = ()
    repeated: bool = False


def split(value: Mapping[str, Any]) -> tuple[ChangePart, dict[str, Any]]:
    """A change and its row, from the value in which both travel."""
    row = {name: field for name, field in value.items() if name not in (KEY_FIELD, CHANGE_FIELD)}
    return msgspec.convert(value[CHANGE_FIELD], ChangePart), row


def applied(
    state: Kept, change: ChangePart, row: dict[str, Any], beside: Collection[str]
) -> TableOutcome:
    """Let a change take effect on ``state``. Fields ``beside`` the row are those of its event: a
    row that only differs in them is the same."""
    if _is_repeated(state, change):
        return TableOutcome(repeated=True)
    if change.reread:
        state.read = change.position
    else:
        state.seen, state.last_back = change.position, change.back
    if change.identified_by is IdentifiedBy.ROW:
        return _counted(state, change, row)
    before = None if state.row is None else decode_value(state.row)
    if not change.back and before is not None and _same(before, row, beside):
        return TableOutcome()
    state.row = None if change.back else encode_value(row)
    state.count = int(not change.back)
    return TableOutcome(() if before is None else (before,), () if change.back else (row,))


def passed(change: ChangePart, row: dict[str, Any]) -> TableOutcome:
    """The outcome of a change alone, whose row nothing identifies."""
    return TableOutcome((row,), ()) if change.back else TableOutcome((), (row,))


def identity(row: Mapping[str, Any], beside: Collection[str]) -> bytes:
    """The identity of a row among those of a table without a key."""
    return xxhash.xxh3_128_digest(_in_order(_without(row, beside)))


def _is_repeated(state: Kept, change: ChangePart) -> bool:
    # A snapshot does not make an event old: its transaction may have written before the snapshot
    # and ended after it.
    if change.position.is_old(state.seen) or (change.reread and change.position.is_old(state.read)):
        return True
    # Times are coarse: two events of one moment may differ in nothing but their effect on the row.
    timed = not change.position.line and change.position.at_ms is not None
    return (
        change.identified_by is IdentifiedBy.ROW
        and timed
        and change.position == state.seen
        and change.back == state.last_back
    )


def _counted(state: Kept, change: ChangePart, row: dict[str, Any]) -> TableOutcome:
    """A row that is its own key, among others that equal it."""
    if change.back:
        if not state.count or state.row is None:
            return TableOutcome()
        state.count -= 1
        return TableOutcome(gone=(decode_value(state.row),))
    if change.reread and state.count:
        return TableOutcome()
    state.count += 1
    if state.row is None:
        state.row = encode_value(row)
        return TableOutcome(new=(row,))
    # the stored row, so that each equal row is taken back by the same value
    return TableOutcome(new=(decode_value(state.row),))


def _same(before: Mapping[str, Any], after: Mapping[str, Any], beside: Collection[str]) -> bool:
    if not beside:
        return before == after
    return _without(before, beside) == _without(after, beside)


def _without(row: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: field for name, field in row.items() if name not in names}
