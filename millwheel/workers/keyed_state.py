"""The state handles that callbacks use, backed by a write-through cache over the shard's store.

A shard has a single writer, so a cached value is always right. What a callback got and may have changed in
place is encoded at the end of the bundle and written if its bytes differ from what was read.

An entry of a state with a time to live carries the time it was last written. It reads as absent once a record
that much later touches it, and a timer of the system's own removes it when nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from millwheel.api import Computation, ListState, MapState, State, ValueState
from millwheel.core.keys import Key, check_key, key_bytes, key_from_bytes, key_hash
from millwheel.core.layout import STATE
from millwheel.core.limits import DEFAULTS, over
from millwheel.errors import CorruptionError, RecordError
from millwheel.workers.overlay import Overlay

_encode = msgspec.msgpack.Encoder().encode
_HEADER = msgspec.msgpack.Decoder(tuple[int, int]).decode
_FIXED = (int, float, str, bytes, bool, type(None))
_ABSENT: Any = object()
TTL_TAG = "\0ttl:"
"""How the tags of the system's own timers begin."""
SetTimer = Callable[[str, int], None]
"""(tag, at): set an event-time timer of the current key."""


class Cell:
    """One cached entry. ``written`` is what the store holds (None: nothing); ``value`` may have moved on."""

    __slots__ = ("at", "dirty", "place", "value", "written")

    def __init__(self, place: bytes, value: Any, written: bytes | None, at: int = 0) -> None:
        self.place = place
        self.value = value
        self.written = written
        self.dirty = False
        self.at = at


class KeyedState:
    """All handles of one computation instance in one shard, and the key they speak of."""

    def __init__(self, instance: Computation, overlay: Overlay, cache_entries: int, most: int = DEFAULTS.state) -> None:
        self.overlay = overlay
        self.most = most
        self.key: Key = None
        self.timestamp = 0
        self._touched: list[tuple[ValueCells | MapCells, Cell]] = []
        self._cache_entries = cache_entries
        self.set_timer: SetTimer = lambda tag, at: None
        self.handles = {name: self._bind(instance, name, state) for name, state in _declared(type(instance)).items()}

    def touch(self, owner: ValueCells | MapCells, cell: Cell) -> None:
        """Remember that a cell may have changed in this bundle."""
        if owner.ttl_us is not None:
            cell.at = max(cell.at, self.timestamp)
            self.set_timer(TTL_TAG + owner.name, cell.at + owner.ttl_us)
        if not cell.dirty:
            cell.dirty = True
            self._touched.append((owner, cell))

    def prefix(self, name: bytes) -> bytes:
        """Where the state ``name`` of the current key lies."""
        key = self.key
        return STATE + key_hash(key).to_bytes(8, "big") + key_bytes(key) + name

    def flush(self) -> None:
        """Write what changed into the overlay. Raises as :meth:`encoded`, and has then done nothing."""
        self.write(self.encoded())

    def encoded(self) -> list[tuple[Cell, bytes | None]]:
        """What changed, as bytes (None: gone). Raises RecordError for a value over the limit, and as encoding does."""
        changes: list[tuple[Cell, bytes | None]] = []
        for owner, cell in self._touched:
            if cell.value is _ABSENT:
                changes.append((cell, None))
                continue
            data = owner.encode(cell.value)
            if len(data) > self.most:
                raise RecordError(over("state", f"state {owner.name!r}: a value", len(data), self.most))
            if owner.ttl_us is not None:
                data = cell.at.to_bytes(8, "big", signed=True) + data
            changes.append((cell, data))
        return changes

    def write(self, changes: list[tuple[Cell, bytes | None]]) -> None:
        """Put what :meth:`encoded` gave into the overlay; trims the cache."""
        written: dict[bytes, bytes | None] = {}
        for cell, data in changes:
            cell.dirty = False
            if data != cell.written:
                written[cell.place] = cell.written = data
        self.overlay.update(written)
        self._touched.clear()
        for handle in self.handles.values():
            handle.trim(self._cache_entries)

    def forget(self) -> None:
        """Drop the whole cache: after a failed callback nothing in memory is to be trusted."""
        self._touched.clear()
        for handle in self.handles.values():
            handle.trim(0)

    def expire(self, tag: str, at: int) -> None:
        """The system's own timer of the current key has come due: remove what was not written for its time to live."""
        self.timestamp = at
        handle = self.handles.get(tag[len(TTL_TAG) :])
        if handle is not None:  # else the class has lost the declaration since
            handle.expire(at)

    def describe(self) -> dict[str, Any]:
        """The state of the current key as plain data, for a dead letter."""
        return {name: handle.describe() for name, handle in self.handles.items()}

    def _bind(self, instance: Computation, name: str, state: State) -> Any:
        kinds: dict[type, Any] = {ValueState: ValueCells, ListState: ListCells, MapState: MapCells}
        handle = kinds[type(state)](self, state)
        instance.__dict__[name] = handle
        return handle


def _declared(kind: type) -> dict[str, State]:
    found: dict[str, State] = {}
    for base in reversed(kind.__mro__):
        found.update({name: value for name, value in vars(base).items() if isinstance(value, State)})
    return found


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

    def cell_of(self, place: bytes) -> Cell:
        """What the store holds at a place, as a cell; absent when its time to live is over."""
        data = self._owner.overlay.get(place)
        if data is None:
            return Cell(place, _ABSENT, None)
        if self.ttl_us is None:
            return Cell(place, self.decode(data), data)
        at = int.from_bytes(data[:8], "big", signed=True)
        live = self._owner.timestamp < at + self.ttl_us
        return Cell(place, self.decode(data[8:]) if live else _ABSENT, data, at)

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
        """Drop cached entries beyond the limit."""


class ValueCells(_Typed):
    """The handle of a ValueState."""

    def __init__(self, owner: KeyedState, state: ValueState[Any]) -> None:
        super().__init__(owner, state)
        self.cells: dict[Key, Cell] = {}
        self._default = state.default

    def get(self) -> Any:
        owner = self._owner
        cell = self.cells.get(owner.key)
        if cell is None:
            cell = self._load()
        elif self.ttl_us is not None and self.expired(cell):
            cell.value = _ABSENT
        if cell.value is _ABSENT:
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
        self.set(_ABSENT)

    def expire(self, at: int) -> None:
        """Remove the value unless it was written again meanwhile."""
        cell = self.cells.get(self._owner.key) or self._load()
        if cell.written is not None and self.ttl_us is not None and at >= cell.at + self.ttl_us:
            self._owner.overlay.delete(cell.place)
            self.cells.pop(self._owner.key, None)

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit:
            for key in list(self.cells)[: len(self.cells) - limit // 2]:
                del self.cells[key]

    def describe(self) -> Any:
        cell = self.cells.get(self._owner.key) or self._load()
        return None if cell.value is _ABSENT else msgspec.to_builtins(cell.value)

    def _load(self) -> Cell:
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
        if cell.value is _ABSENT:
            return default
        if not cell.dirty and type(cell.value) not in _FIXED:
            self._owner.touch(self, cell)
        return cell.value

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        cell = self._cell(key)
        cell.value = value
        self._owner.touch(self, cell)

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self[key] = _ABSENT

    def __contains__(self, key: Key) -> bool:
        return self._cell(key).value is not _ABSENT

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
        if len(self.cells) > limit:
            for key in list(self.cells)[: len(self.cells) - limit // 2]:
                del self.cells[key]

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
            cell.value = _ABSENT
        return cell
