"""The state handles that callbacks use, backed by a write-through cache over the shard's store.

A shard has a single writer, so a cached value is always right. What a callback got and may have changed in
place is encoded at the end of the bundle and written if its bytes differ from what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from millwheel.api import Computation, ListState, MapState, State, ValueState
from millwheel.core.keys import Key, check_key, key_bytes, key_from_bytes, key_hash
from millwheel.core.layout import STATE
from millwheel.errors import CorruptionError, RecordError
from millwheel.workers.overlay import Overlay

_encode = msgspec.msgpack.Encoder().encode
_COUNT = msgspec.msgpack.Decoder(int).decode
_FIXED = (int, float, str, bytes, bool, type(None))
_ABSENT: Any = object()


class Cell:
    """One cached entry. ``written`` is what the store holds (None: nothing); ``value`` may have moved on."""

    __slots__ = ("dirty", "place", "value", "written")

    def __init__(self, place: bytes, value: Any, written: bytes | None) -> None:
        self.place = place
        self.value = value
        self.written = written
        self.dirty = False


class KeyedState:
    """All handles of one computation instance in one shard, and the key they speak of."""

    def __init__(self, instance: Computation, overlay: Overlay, cache_entries: int) -> None:
        self.overlay = overlay
        self.key: Key = None
        self.timestamp = 0
        self._touched: list[tuple[ValueCells | MapCells, Cell]] = []
        self._cache_entries = cache_entries
        self.handles = {name: self._bind(instance, name, state) for name, state in _declared(type(instance)).items()}

    def touch(self, owner: ValueCells | MapCells, cell: Cell) -> None:
        """Remember that a cell may have changed in this bundle."""
        if not cell.dirty:
            cell.dirty = True
            self._touched.append((owner, cell))

    def prefix(self, name: bytes) -> bytes:
        """Where the state ``name`` of the current key lies."""
        key = self.key
        return STATE + key_hash(key).to_bytes(8, "big") + key_bytes(key) + name

    def flush(self) -> None:
        """Write what changed into the overlay; trims the cache."""
        put = self.overlay.put
        for owner, cell in self._touched:
            cell.dirty = False
            if cell.value is _ABSENT:
                if cell.written is not None:
                    self.overlay.delete(cell.place)
                    cell.written = None
                continue
            data = owner.encode(cell.value)
            if data != cell.written:
                put(cell.place, data)
                cell.written = data
        self._touched.clear()
        for handle in self.handles.values():
            handle.trim(self._cache_entries)

    def forget(self) -> None:
        """Drop the whole cache: after a failed callback nothing in memory is to be trusted."""
        self._touched.clear()
        for handle in self.handles.values():
            handle.trim(0)

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
        if not cell.dirty:
            owner.touch(self, cell)

    def clear(self) -> None:
        self.set(_ABSENT)

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit:
            for key in list(self.cells)[: len(self.cells) - limit // 2]:
                del self.cells[key]

    def describe(self) -> Any:
        cell = self.cells.get(self._owner.key) or self._load()
        return None if cell.value is _ABSENT else msgspec.to_builtins(cell.value)

    def _load(self) -> Cell:
        place = self._owner.prefix(self._name)
        data = self._owner.overlay.get(place)
        cell = Cell(place, _ABSENT if data is None else self.decode(data), data)
        self.cells[self._owner.key] = cell
        return cell


class ListCells(_Typed):
    """The handle of a ListState: a count, and one entry per item."""

    def append(self, item: Any) -> None:
        place = self._owner.prefix(self._name)
        count = self._count(place)
        self._owner.overlay.put(place + count.to_bytes(8, "big"), self.encode(item))
        self._owner.overlay.put(place, _encode(count + 1))

    def __iter__(self) -> Iterator[Any]:
        place = self._owner.prefix(self._name)
        places = [place + i.to_bytes(8, "big") for i in range(self._count(place))]
        return iter([self.decode(data) for data in self._owner.overlay.get_many(places) if data is not None])

    def __len__(self) -> int:
        return self._count(self._owner.prefix(self._name))

    def clear(self) -> None:
        place = self._owner.prefix(self._name)
        for i in range(self._count(place)):
            self._owner.overlay.delete(place + i.to_bytes(8, "big"))
        self._owner.overlay.delete(place)

    def describe(self) -> Any:
        return [msgspec.to_builtins(item) for item in self]

    def _count(self, place: bytes) -> int:
        data = self._owner.overlay.get(place)
        return 0 if data is None else _COUNT(data)


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
        return iter([(key, self[key]) for key in keys])

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
            data = self._owner.overlay.get(place)
            cell = Cell(place, _ABSENT if data is None else self.decode(data), data)
            self.cells[self._owner.key, key] = cell
        return cell
