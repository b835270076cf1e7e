"""The objects that stand for declared states in a callback: a value, a list or a map of the current
key.

Values and entries of maps are cached as cells, since a shard has a single writer.

An entry of a state with a time to live carries when it was written: the highest time of the calls
that wrote it. A call whose time is that plus the time to live, or later, finds nothing there. That
alone decides what is found, so bundles, caches and the order of removal do not show. A read removes
nothing: an out-of-order record with an earlier time still finds the entry. A system timer removes
entries from the store once the watermark has passed their time to live. There is one for each state
of a key; it is set for the entry that must go first and, when it comes due, for the next, so that a
write moves no timer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.api import MapState, ValueState
from millwheel.core.aggregates.plain_data import PLAIN
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.keys import Key, check_key, key_bytes, key_from_bytes, stored_key
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.state.cells import (
    ABSENT,
    STORED,
    Cell,
    Typed,
    default_of,
    trimmed,
    written_at,
)
from millwheel.engine.workers.state.stored_types import shown
from millwheel.errors import RecordError

if TYPE_CHECKING:
    from millwheel.engine.workers.state.keyed_state import KeyedState


_encode = msgspec.msgpack.Encoder().encode
_HEADER = msgspec.msgpack.Decoder(tuple[int, int]).decode
_LOADS_OF_MOST = 4
"""The values of the next bundles are read ahead if one in this many records asks the store for a
value."""
_BUNDLES_AHEAD = 63  # that are read ahead before the requests are measured again
_MAP_KEYS = (str, int, bytes)
_NEXT = b"\0"  # Fixed: behind a stored key, the least that is greater
_CACHED_BYTES = 32 << 20
"""Bytes of the cached entries of one state of a shard, as they are stored."""
_LOOKS_IN_A_TTL = 8
"""How often the entries of a map are searched for those that must go: each time costs a scan of
them all."""


class ValueCells(Typed):
    """The handle of a ValueState."""

    def __init__(self, owner: KeyedState, state: ValueState[Any]) -> None:
        super().__init__(owner, state)
        self.cells: dict[Key, Cell] = {}
        self._declared = state
        self._items = self.stored.items
        self._loads = 0
        self._ahead = 0

    def get(self) -> Any:
        cell = self.cells.get(self._owner.key) or self._load()
        value = cell.value
        if self.ttl_us is None and value is not STORED and value is not ABSENT:
            if type(value) in PLAIN:
                return value
            if not cell.dirty:
                self._owner.touch(self, cell)
            elif cell.lent and not self.exact(value):
                self.settle(cell)
            cell.lent = True
            return cell.value
        value = self.found(cell)
        if value is ABSENT:
            return self._fresh(cell)
        if type(value) not in PLAIN:
            self.hand(cell, value)
        return value

    def set(self, value: Any) -> None:
        cell = self.cells.get(self._owner.key) or self._load()
        if self.ttl_us is not None:
            self.write(cell, value)
            return
        if value is cell.value:  # looked at when it was set, or later if it was changed in place
            pass
        elif type(value) is list and self._items.issuperset(map(type, value)):
            # as :meth:`keep` does, which would be a call more for each record
            cell.data = self.encode(value)
            cell.value, cell.lent = value.copy(), False
        else:
            self.keep(cell, value)
        if not cell.dirty:
            self._owner.touch(self, cell)

    def clear(self) -> None:
        self.set(ABSENT)

    def expire(self, now_us: int) -> None:
        """Remove the value unless it was written again meanwhile."""
        cell = self.cells.get(self._owner.key) or self._load()
        if cell.value is ABSENT:
            return
        if self.gone_by(cell.at, now_us):
            self.write(cell, ABSENT)
        else:
            self.look_later(cell.at)

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit or self.held > _CACHED_BYTES:
            self.held = trimmed(self.cells, limit // 2, _CACHED_BYTES // 2)

    def describe(self) -> Any:
        value = self.found(self.cells.get(self._owner.key) or self._load())
        return None if value is ABSENT else msgspec.to_builtins(value)

    def read_ahead(self, keys: Sequence[Key], before: int) -> None:
        """Read the values of these keys together, which takes half as long as one by one, if enough
        of the last ``before`` records asked for theirs. Occasionally nothing is read ahead, to
        measure which entries are requested."""
        if self._ahead:
            self._ahead -= 1
        elif 0 < before <= self._loads * _LOADS_OF_MOST:
            self._ahead = _BUNDLES_AHEAD
        self._loads = 0
        if self._ahead:
            self.load(keys)

    def load(self, keys: Iterable[Key]) -> None:
        """Read the values of these keys together."""
        owner, cells = self._owner, self.cells
        fresh = [key for key in dict.fromkeys(keys) if key not in cells]
        store_keys = [STATE + store_key + self._name for store_key in map(stored_key, fresh)]
        values = owner.overlay.get_many(store_keys)
        for key, store_key, data in zip(fresh, store_keys, values, strict=True):
            owner.key = key  # for a message about a damaged value
            cells[key] = self.cell_from(store_key, data)

    def values_of(self, keys: Sequence[Key]) -> Iterator[tuple[int, Any]]:
        """The values that some keys have as a bundle begins, by the number of the key: to look at,
        so they are not kept in memory."""
        owner = self._owner
        store_keys = [STATE + store_key + self._name for store_key in map(stored_key, keys)]
        for number, data in enumerate(owner.overlay.get_many(store_keys)):
            if data is not None:
                owner.key = keys[number]  # for a message about a damaged value
                yield number, self.decode(data)

    def _fresh(self, cell: Cell) -> Any:
        """The default, which is the value from now on if it can be changed in place; with a time to
        live only if it was."""
        handed = self._owner.handed.get(id(cell)) if self.ttl_us is not None else None
        if handed is not None:
            return handed.value
        fresh = default_of(self._declared)
        if type(fresh) not in PLAIN:
            # or all keys would share what the factory gives
            fresh = self.decode(self.stored.form(fresh)[1])
            if self.ttl_us is None:
                cell.value = fresh  # hand() marks it as lent
            self.hand(cell, fresh)
        return fresh

    def _load(self) -> Cell:
        self._loads += 1
        cell = self.cells[self._owner.key] = self.cell_of(self._owner.prefix(self._name))
        return cell


class ListCells(Typed):
    """The handle of a ListState: a count, and one entry per item."""

    def append(self, item: Any) -> None:
        _, data = self.stored.form(item)
        store_key, now_us = self._owner.prefix(self._name), self._owner.timestamp
        count, at = self._header(store_key)
        if count and self.gone_by(at, now_us):
            self.clear()
            count = 0
        at = max(at, now_us) if count else now_us
        self._owner.overlay.put(store_key + count.to_bytes(8, "big"), data)
        self._owner.overlay.put(store_key, _encode((count + 1, at)))
        if self.ttl_us is not None:
            self.look_later(at)

    def __iter__(self) -> Iterator[Any]:
        store_key = self._owner.prefix(self._name)
        store_keys = [store_key + i.to_bytes(8, "big") for i in range(self._count(store_key))]
        return iter(
            [
                self.decode(data)
                for data in self._owner.overlay.get_many(store_keys)
                if data is not None
            ]
        )

    def __len__(self) -> int:
        return self._count(self._owner.prefix(self._name))

    def clear(self) -> None:
        store_key = self._owner.prefix(self._name)
        for i in range(self._header(store_key)[0]):
            self._owner.overlay.delete(store_key + i.to_bytes(8, "big"))
        self._owner.overlay.delete(store_key)

    def expire(self, now_us: int) -> None:
        """Remove the list unless it grew meanwhile."""
        count, at = self._header(self._owner.prefix(self._name))
        if self.gone_by(at, now_us):
            self.clear()
        elif count:
            self.look_later(at)

    def describe(self) -> Any:
        return [msgspec.to_builtins(item) for item in self]

    def _count(self, store_key: bytes) -> int:
        count, at = self._header(store_key)
        return 0 if self.gone_by(at, self._owner.timestamp) else count

    def _header(self, store_key: bytes) -> tuple[int, int]:
        """(number of items, the highest time of a call that appended one)."""
        data = self._owner.overlay.get(store_key)
        return (0, 0) if data is None else _HEADER(data)


class MapCells(Typed):
    """The handle of a MapState: one entry per map key."""

    def __init__(self, owner: KeyedState, state: MapState[Any, Any]) -> None:
        super().__init__(owner, state)
        self._keys = state.keys
        self.cells: dict[tuple[Key, Key], Cell] = {}

    def get(self, key: Key, default: Any = None) -> Any:
        cell = self._cell(key)
        value = self.found(cell)
        if value is ABSENT:
            return default
        if type(value) not in PLAIN:
            self.hand(cell, value)
        return value

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        self.write(self._cell(key), value)

    def __delitem__(self, key: Key) -> None:
        cell = self._cell(key)
        if not self.is_there(cell):
            raise KeyError(key)
        self.write(cell, ABSENT)

    def __contains__(self, key: Key) -> bool:
        return self.found(self._cell(key)) is not ABSENT

    def items(self) -> Iterator[tuple[Key, Any]]:
        return iter([(key, self[key]) for key in self._stored() if key in self])

    def behind(self, key: Key | None) -> Iterator[tuple[Key, Any]]:
        """The entries behind that of a key (None: all), in the order of their stored keys. They are
        read as they are asked for, and kept in memory only where they were before."""
        self._flush()
        prefix = self._owner.prefix(self._name)
        since = b"" if key is None else prefix + key_bytes(key) + _NEXT
        for store_key, data in self._owner.overlay.scan(prefix, since):
            name = key_from_bytes(store_key[len(prefix) :])
            if self.ttl_us is not None or (self._owner.key, name) in self.cells:
                if (value := self.get(name, ABSENT)) is not ABSENT:
                    yield name, value
            else:
                yield name, self.decode(data)

    def expire(self, now_us: int) -> None:
        """Remove the entries that were not written again meanwhile. The others are looked at
        later."""
        self._flush()
        prefix, first = self._owner.prefix(self._name), MAX_TIME
        for store_key, data in list(self._owner.overlay.scan(prefix)):
            at = written_at(data)
            if self.gone_by(at, now_us):
                self._drop(store_key, key_from_bytes(store_key[len(prefix) :]))
            else:
                first = min(first, at)
        if first < MAX_TIME:
            self.look_later(first)

    def _looked_at(self, end: int) -> int:
        assert self.ttl_us is not None
        step = max(self.ttl_us // _LOOKS_IN_A_TTL, 1)
        return -(-end // step) * step

    def clear(self) -> None:
        for key in self._stored():
            self.write(self._cell(key), ABSENT)

    def trim(self, limit: int) -> None:
        if len(self.cells) > limit or self.held > _CACHED_BYTES:
            self.held = trimmed(self.cells, limit // 2, _CACHED_BYTES // 2)

    def describe(self) -> Any:
        pairs = [(key, self.found(self._cell(key))) for key in self._stored()]
        return [[key, msgspec.to_builtins(value)] for key, value in pairs if value is not ABSENT]

    def _stored(self) -> list[Key]:
        """The keys of all entries that the store will have, also of those whose time to live is
        over."""
        self._flush()
        prefix = self._owner.prefix(self._name)
        return [
            key_from_bytes(store_key[len(prefix) :])
            for store_key, _ in self._owner.overlay.scan(prefix)
        ]

    def _flush(self) -> None:
        """Write what this state alone has changed, before it is scanned: of all states, each record
        of a bundle would encode again what those before it have changed."""
        self._owner.flush(self)

    def _drop(self, store_key: bytes, key: Key) -> None:
        """Remove an entry that is in the overlay as it is in the cache."""
        self._owner.overlay.delete(store_key)
        cell = self.cells.pop((self._owner.key, key), None)
        if cell is not None:  # it may be among those that are written at the end of the bundle
            cell.value, cell.written = ABSENT, None

    def _cell(self, key: Key) -> Cell:
        # before it is looked for: 1, 1.0 and True are the same in a dict
        if type(key) not in _MAP_KEYS:
            key = self._checked(key)
        cell = self.cells.get((self._owner.key, key))
        if cell is None:
            key = self._checked(key)
            store_key = self._owner.prefix(self._name) + key_bytes(key)
            cell = self.cells[self._owner.key, key] = self.cell_of(store_key)
        return cell

    def _checked(self, key: Any) -> Key:
        try:
            checked = check_key(key)
        except RecordError as ex:
            raise RecordError(f"state {self.name!r}: {ex}") from ex
        if self._keys in _MAP_KEYS and type(checked) is not self._keys:
            raise RecordError(
                f"state {self.name!r} has keys that are {self._keys.__name__}, not {shown(key)}"
            )
        return checked
