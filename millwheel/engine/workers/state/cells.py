"""Cached entries of state, and the common part of the handles of one declared type.

A value that a call sets is kept as bytes, and one that a call reads is an object of its own from
then on: to change the object that was set changes nothing, and two entries never share one. A value
that was read may be changed in place. Whether it still is of its declared type is checked before
the next call of the key sees it, and before it is written.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.api import ListState, State, ValueState
from millwheel.core.aggregates.plain_data import PLAIN
from millwheel.core.model.times import LAST_TIME
from millwheel.engine.workers.state.stored_types import StoredType
from millwheel.errors import CorruptionError

if TYPE_CHECKING:
    from millwheel.engine.workers.state.keyed_state import KeyedState

ABSENT: Any = object()
"""The value of a cell that has none."""
STORED: Any = object()
"""The value of a cell that is not decoded: its bytes count."""
TTL_TAG = "\0ttl:"
"""The beginning of the tags of the system's own timers."""
TIME_BYTES = 8  # Fixed: when an entry with a time to live was written, before its value
_OURS = 2
"""Fixed: the references to a value that only its cell has, with that of the call that counts
them."""


class Cell:
    """One cached entry. ``written`` is its entry in the store (None: it has none), ``data`` the
    bytes of its value there, or of the one that was set since, where ``value`` is STORED or not
    ``lent``; else ``value`` may be newer. ``lent``: a caller may have the value, and change it in
    place."""

    __slots__ = ("at", "data", "dirty", "lent", "store_key", "value", "written")

    def __init__(self, store_key: bytes, value: Any, written: bytes | None, at: int = 0) -> None:
        self.store_key = store_key
        self.value = value
        self.written = written
        self.data = written
        self.dirty = False
        self.lent = True
        self.at = at

    def close(self, flat: bool) -> None:
        """End a bundle. A value that a caller still holds is read from its bytes again: later
        changes of it do not count. ``flat``: it has no parts that a caller could hold in place of
        it."""
        if not self.lent:
            return
        if type(self.value) in PLAIN or self.value is ABSENT or self.value is STORED:
            return
        if not flat or getrefcount(self.value) > _OURS:
            self.value = STORED


def trimmed(cells: dict[Any, Cell], most: int, most_bytes: int) -> int:
    """Drop the oldest cells, so that at most ``most`` are left, with at most ``most_bytes``;
    returns the bytes that are left."""
    held, count = 0, 0
    for cell in reversed(cells.values()):
        size = len(cell.written or b"")
        if count == most or held + size > most_bytes:
            break
        held, count = held + size, count + 1
    for key in list(cells)[: len(cells) - count]:
        del cells[key]
    return held


class Typed:
    """The reading and writing of one declared type, with errors that name the state."""

    def __init__(self, owner: KeyedState, state: State) -> None:
        self._owner = owner
        self._state = state
        self._name = state.name.encode() + b"\0"
        part = "an item" if isinstance(state, ListState) else "a value"
        self.stored = StoredType(state.type, state.name, part, owner.most)
        self.exact = self.stored.exact
        self.encode = self.stored.encode
        self.name = state.name
        self.kind = state.type
        self.ttl_us = state.ttl_us
        self.held = 0
        """About how many bytes the cached cells have in the store."""
        self.touched: list[Cell] = []
        """The cells that may have changed in this bundle."""

    def cell_of(self, store_key: bytes) -> Cell:
        """The value under a key of the store, as a cell."""
        return self.cell_from(store_key, self._owner.overlay.get(store_key))

    def cell_from(self, store_key: bytes, data: bytes | None) -> Cell:
        """The same for a value that was read already."""
        if data is None:
            return Cell(store_key, ABSENT, None)
        self.held += len(data)
        if self.ttl_us is None:
            return Cell(store_key, self.decode(data), data)
        cell = Cell(store_key, STORED, data, written_at(data))
        cell.data = data[TIME_BYTES:]
        return cell

    def found(self, cell: Cell) -> Any:
        """The value of a cell for the current call; ABSENT if its time to live is over."""
        if self.ttl_us is not None and self.gone_by(cell.at, self._owner.timestamp):
            return ABSENT
        value = cell.value
        if value is STORED:
            assert cell.data is not None
            value = cell.value = self.decode(cell.data)
        elif (
            cell.dirty
            and cell.lent
            and value is not ABSENT
            and type(value) not in PLAIN
            and not self.exact(value)
        ):
            self.settle(cell)
        return cell.value

    def is_there(self, cell: Cell) -> bool:
        """Whether :meth:`found` finds a value, without a look at it."""
        gone = self.ttl_us is not None and self.gone_by(cell.at, self._owner.timestamp)
        return cell.value is not ABSENT and not gone

    def settle(self, cell: Cell) -> None:
        """Store a value that was changed in place as it will be read after a crash. Raises
        RecordError for one that cannot be."""
        back, _ = self.stored.form(cell.value)
        if back is not cell.value:
            cell.value = _become(cell.value, back)

    def keep(self, cell: Cell, value: Any) -> None:
        """Set the value of a cell for the current call (ABSENT: it has none). Raises RecordError
        for a value that would not come back as it is."""
        kind = type(value)
        if kind in self.stored.plain:
            self.stored.check_plain(value)
            cell.value, cell.lent = value, True
        elif value is ABSENT:
            cell.value, cell.lent = value, True
        elif value is cell.value:  # changed in place, and looked at later
            pass
        elif kind is list and self.stored.items.issuperset(map(type, value)):
            cell.data = self.encode(value)
            cell.value, cell.lent = value.copy(), False
        else:
            form, data = self.stored.form(value)
            if type(form) not in PLAIN:
                cell.data, cell.value, cell.lent = data, STORED, True
            else:
                cell.value, cell.lent = form, True

    def write(self, cell: Cell, value: Any) -> None:
        """Write a cell for the current call (ABSENT: remove the entry)."""
        absent = cell.value is ABSENT
        self.keep(cell, value)
        if self.ttl_us is not None:
            self._owner.handed.pop(id(cell), None)
            if value is not ABSENT:
                now_us = self._owner.timestamp
                cell.at = now_us if absent else max(cell.at, now_us)
                self.look_later(cell.at)
        if not cell.dirty:
            self._owner.touch(self, cell)

    def bytes_of(self, cell: Cell) -> bytes:
        """The bytes to be stored of a cell that has a value. Raises RecordError as
        :meth:`settle`."""
        if cell.value is STORED or not cell.lent:
            assert cell.data is not None
            return cell.data
        data = self.encode(cell.value)
        if data != cell.data and type(cell.value) not in PLAIN and not self.exact(cell.value):
            self.settle(cell)
            return self.encode(cell.value)
        return data

    def hand(self, cell: Cell, value: Any) -> None:
        """Give the current call a value that it may change in place."""
        cell.lent = True
        if self.ttl_us is not None:
            self._owner.hand(self, cell, value)
        elif not cell.dirty:
            self._owner.touch(self, cell)

    def gone_by(self, at: int, now_us: int) -> bool:
        """Whether a call at ``now_us`` no longer finds a value written at ``at``. A life that would
        end after the last instant has no end: another call at that instant still finds the
        value."""
        if self.ttl_us is None:
            return False
        end = at + self.ttl_us
        return end <= now_us and end <= LAST_TIME

    def look_later(self, at: int) -> None:
        """Schedule the removal of a value written at ``at`` at the end of its time to live."""
        assert self.ttl_us is not None
        if at + self.ttl_us <= LAST_TIME:  # else it would be looked at for ever at that instant
            self._owner.look_at(TTL_TAG + self.name, self._looked_at(at + self.ttl_us))

    def _looked_at(self, end: int) -> int:
        """The time at which to remove values whose life ends at ``end``."""
        return end

    def decode(self, data: bytes) -> Any:
        try:
            return self.stored.decode(data)
        except msgspec.ValidationError as ex:
            raise CorruptionError(
                f"state {self._state.name!r} of key {self._owner.key!r} does not fit its declared"
                f" type {self._state.type}: {ex}. New fields need defaults; a changed type needs a"
                " new state name"
            ) from ex

    def trim(self, limit: int) -> None:
        """Drop cached entries beyond the limit, or beyond what they may hold."""


def _become(value: Any, other: Any) -> Any:
    """``value`` with the contents of ``other``, as the same object where that is possible: the call
    may hold it."""
    if isinstance(value, list):
        value[:] = other
    elif isinstance(value, (dict, set)):
        value.clear()
        value.update(other)
    elif isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        for name in value.__struct_fields__:
            setattr(value, name, getattr(other, name))
    else:
        return other
    return value


def written_at(data: bytes) -> int:
    """The time at which an entry with a time to live was written, from its stored form."""
    return int.from_bytes(data[:TIME_BYTES], "big", signed=True)


def default_of(state: ValueState[Any]) -> Any:
    """The value of a key that has none of its own."""
    return state.default() if callable(state.default) else state.default
