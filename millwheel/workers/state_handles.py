"""What a callback has in the place of a declared state: a value, a list or a map of the current key.

Values and entries of maps are cached as cells, since a shard has a single writer. An entry of a state with a time to
live carries the time it was last written. It reads as absent once a record that much later touches it, and a timer of
the system's own removes it when nobody does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.api import State, ValueState
from millwheel.core.keys import Key, check_key, key_bytes, key_from_bytes, placed_key
from millwheel.core.layout import STATE
from millwheel.core.limits import over
from millwheel.errors import CorruptionError, RecordError

if TYPE_CHECKING:
    from millwheel.workers.keyed_state import KeyedState

_encode = msgspec.msgpack.Encoder().encode
_HEADER = msgspec.msgpack.Decoder(tuple[int, int]).decode
_FIXED = (int, float, str, bytes, bool, type(None))
ABSENT: Any = object()
"""The value of a cell that has none."""
_LOADS_OF_MOST = 4
"""Where one in so many records asks the store for a value, the values of the next bundles are read ahead."""
_BUNDLES_AHEAD = 63
_CACHED_BYTES = 32 << 20
"""Of one state of a shard, as they are stored."""
TTL_TAG = "\0ttl:"
"""How the tags of the system's own timers begin."""


class Cell:
    """One cached entry. ``written`` is what the store holds (None: nothing); ``value`` may have moved on."""

    __slots__ = ("at", "dirty", "place", "value", "written")

    def __init__(self, place: bytes, value: Any, written: bytes | None, at: int = 0) -> None:
        self.place = place
        self.value = value
        self.written = written
        self.dirty = False
        self.at = at


def _trimmed(cells: dict[Any, Cell], most: int, most_bytes: int) -> int:
    """Drop the oldest cells, so that at most so many are left, with at most so many bytes; how many bytes are left."""
    held, kept = 0, 0
    for cell in reversed(cells.values()):
        size = len(cell.written or b"")
        if kept == most or held + size > most_bytes:
            break
        held, kept = held + size, kept + 1
    for key in list(cells)[: len(cells) - kept]:
        del cells[key]
    return held


class _Typed:
    """Encoding and decoding of one declared type, with errors that name the state."""

    def __init__(self, owner: KeyedState, state: State) -> None:
        self._owner = owner
        self._state = state
        self._name = state.name.encode() + b"\0"
        self._decoder = msgspec.msgpack.Decoder(state.type)
        self.encode = _encode
        self.name = state.name
        self.ttl_us = state.ttl_us
        self.held = 0
        """About how many bytes the cached cells have in the store."""

    def cell_of(self, place: bytes) -> Cell:
        """What the store holds at a place, as a cell; absent when its time to live is over."""
        data = self._owner.overlay.get(place)
        if data is None:
            return Cell(place, ABSENT, None)
        self.held += len(data)
        if self.ttl_us is None:
            return Cell(place, self.decode(data), data)
        at = int.from_bytes(data[:8], "big", signed=True)
        live = self._owner.timestamp < at + self.ttl_us
        return Cell(place, self.decode(data[8:]) if live else ABSENT, data, at)

    def expired(self, cell: Cell) -> bool:
        """Whether a cached cell has outlived its time."""
        return self.ttl_us is not None and self._owner.timestamp >= cell.at + self.ttl_us and cell.written is not None

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as ex:
            raise CorruptionError(
                f"state {self._state.name!r} of key {self._owner.key!r} does not fit its declared type "
                f"{self._state.type}: {ex}. New fields need defaults; a changed type needs a new state name"
            ) from ex

    def trim(self, limit: int) -> None:
        """Drop cached entries beyond the limit, or beyond what they may hold."""


class ValueCells(_Typed):
    """The handle of a ValueState."""

    def __init__(self, owner: KeyedState, state: ValueState[Any]) -> None:
        super().__init__(owner, state)
        self.cells: dict[Key, Cell] = {}
        self._default = state.default
        self._loads = 0
        self._ahead = 0

    def get(self) -> Any:
        owner = self._owner
        cell = self.cells.get(owner.key)
        if cell is None:
            cell = self._load()
        elif self.ttl_us is not None and self.expired(cell):
            cell.value = ABSENT
        if cell.value is ABSENT:
            default = self._default
            fresh = default() if callable(default) else default
            if type(fresh) in _FIXED:
                return fresh
            cell.value = fresh
        if not cell.dirty and type(cell.value) not in _FIXED:
            owner.touch(self, cell)
        return cell.value

    def set(self, value: Any) -> None:
        owner = self._owner
        cell = self.cells.get(owner.key) or self._load()
        cell.value = value
        if not cell.dirty or self.ttl_us is not None:
            owner.touch(self, cell)

    def clear(self) -> None:
        self.set(ABSENT)

    def expire(self, at: int) -> None:
        """Remove the value unless it was written again meanwhile."""
        cell = self.cells.get(self._owner.key) or self._load()
        if cell.written is not None and self.ttl_us is not None and at >= cell.at + self.ttl_us:
            self._owner.overlay.delete(cell.place)
            self.cells.pop(self._owner.key, None)

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit or self.held > _CACHED_BYTES:
            self.held = _trimmed(self.cells, limit // 2, _CACHED_BYTES // 2)

    def describe(self) -> Any:
        cell = self.cells.get(self._owner.key) or self._load()
        return None if cell.value is ABSENT else msgspec.to_builtins(cell.value)

    def read_ahead(self, keys: Sequence[Key], before: int) -> None:
        """Read the values of these keys together, which takes half as long as one by one, if enough of the last
        ``before`` records asked for theirs. Now and then nothing is read ahead, to see what is asked for."""
        if self._ahead:
            self._ahead -= 1
        elif 0 < before <= self._loads * _LOADS_OF_MOST:
            self._ahead = _BUNDLES_AHEAD
        self._loads = 0
        if not self._ahead:
            return
        owner, cells = self._owner, self.cells
        fresh = [key for key in dict.fromkeys(keys) if key not in cells]
        places = [STATE + place + self._name for place in map(placed_key, fresh)]
        found = owner.overlay.get_many(places)
        for key, place, data in zip(fresh, places, found, strict=True):
            if data is None:
                cells[key] = Cell(place, ABSENT, None)
            else:
                owner.key = key
                cells[key] = Cell(place, self.decode(data), data)
                self.held += len(data)

    def _load(self) -> Cell:
        self._loads += 1
        cell = self.cells[self._owner.key] = self.cell_of(self._owner.prefix(self._name))
        return cell


class ListCells(_Typed):
    """The handle of a ListState: a count, and one entry per item."""

    def append(self, item: Any) -> None:
        place = self._owner.prefix(self._name)
        count = self._count(place)
        if not count and self.ttl_us is not None:
            self.clear()
        data = self.encode(item)
        if len(data) > self._owner.most:
            raise RecordError(over("state", f"state {self.name!r}: an item", len(data), self._owner.most))
        self._owner.overlay.put(place + count.to_bytes(8, "big"), data)
        self._owner.overlay.put(place, _encode((count + 1, self._owner.timestamp)))
        if self.ttl_us is not None:
            self._owner.set_timer(TTL_TAG + self.name, self._owner.timestamp + self.ttl_us)

    def __iter__(self) -> Iterator[Any]:
        place = self._owner.prefix(self._name)
        places = [place + i.to_bytes(8, "big") for i in range(self._count(place))]
        return iter([self.decode(data) for data in self._owner.overlay.get_many(places) if data is not None])

    def __len__(self) -> int:
        return self._count(self._owner.prefix(self._name))

    def clear(self) -> None:
        place = self._owner.prefix(self._name)
        for i in range(self._header(place)[0]):
            self._owner.overlay.delete(place + i.to_bytes(8, "big"))
        self._owner.overlay.delete(place)

    def expire(self, at: int) -> None:
        """Remove the list unless it grew meanwhile."""
        if self.ttl_us is not None and at >= self._header(self._owner.prefix(self._name))[1] + self.ttl_us:
            self.clear()

    def describe(self) -> Any:
        return [msgspec.to_builtins(item) for item in self]

    def _count(self, place: bytes) -> int:
        count, at = self._header(place)
        return 0 if self.ttl_us is not None and self._owner.timestamp >= at + self.ttl_us else count

    def _header(self, place: bytes) -> tuple[int, int]:
        """(number of items, when the last one came)."""
        data = self._owner.overlay.get(place)
        return (0, 0) if data is None else _HEADER(data)


class MapCells(_Typed):
    """The handle of a MapState: one entry per map key."""

    def __init__(self, owner: KeyedState, state: State) -> None:
        super().__init__(owner, state)
        self.cells: dict[tuple[Key, Key], Cell] = {}

    def get(self, key: Key, default: Any = None) -> Any:
        cell = self._cell(key)
        if cell.value is ABSENT:
            return default
        if not cell.dirty and type(cell.value) not in _FIXED:
            self._owner.touch(self, cell)
        return cell.value

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        cell = self._cell(key)
        cell.value = value
        self._owner.touch(self, cell)

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self[key] = ABSENT

    def __contains__(self, key: Key) -> bool:
        return self._cell(key).value is not ABSENT

    def items(self) -> Iterator[tuple[Key, Any]]:
        self._owner.flush()
        prefix = self._owner.prefix(self._name)
        keys = [key_from_bytes(place[len(prefix) :]) for place, _ in self._owner.overlay.scan(prefix)]
        return iter([(key, self[key]) for key in keys if key in self])

    def expire(self, at: int) -> None:
        """Remove the entries that were not written again meanwhile; the others get a timer of their own."""
        self._owner.flush()
        prefix, ttl_us = self._owner.prefix(self._name), self.ttl_us or 0
        for place, data in list(self._owner.overlay.scan(prefix)):
            written = int.from_bytes(data[:8], "big", signed=True)
            if at >= written + ttl_us:
                self._owner.overlay.delete(place)
                self.cells.pop((self._owner.key, key_from_bytes(place[len(prefix) :])), None)
            else:
                self._owner.set_timer(TTL_TAG + self.name, written + ttl_us)

    def clear(self) -> None:
        for key, _ in self.items():
            del self[key]

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit or self.held > _CACHED_BYTES:
            self.held = _trimmed(self.cells, limit // 2, _CACHED_BYTES // 2)

    def describe(self) -> Any:
        return [[key, msgspec.to_builtins(value)] for key, value in self.items()]

    def _cell(self, key: Key) -> Cell:
        cell = self.cells.get((self._owner.key, key))
        if cell is None:
            try:
                place = self._owner.prefix(self._name) + key_bytes(check_key(key))
            except RecordError as ex:
                raise RecordError(f"state {self._state.name!r}: {ex}") from ex
            cell = self.cells[self._owner.key, key] = self.cell_of(place)
        elif self.ttl_us is not None and self.expired(cell):
            cell.value = ABSENT
        return cell
