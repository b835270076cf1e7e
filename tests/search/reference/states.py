"""State of callbacks: values, lists and maps of one key, as plain Python objects, and their time to
live.

An entry with a time to live is absent for whoever comes that much later than it was last written,
by the event time of the records and timers that touch the key; who comes out of order, earlier,
still finds it. That it is removed is an event like a timer: once the watermark has passed that
time, in order with what else the watermark passes. Writing an entry at an earlier event time than
before does not make it older.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from millwheel.api import Computation, ListState, State, ValueState
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import check_key

if TYPE_CHECKING:
    from tests.search.reference.calls import CallNode


@dataclass(slots=True)
class Entry:
    """Something remembered, and the highest event time at which it was written."""

    value: Any
    at: int


Memory = dict[tuple[str, Any], Entry]
"""What one key remembers: (state, key of the map or None) to what is there."""


class Handed(NamedTuple):
    """A value that the current call was given, and what it was then."""

    handle: Handle
    value: Any
    before: bytes


class Handle:
    """What a callback has in the place of a declared state. Always about the node's current key."""

    def __init__(self, node: CallNode, state: State) -> None:
        self._node = node
        self._state = state

    def _find(self, part: Any = None) -> Entry | None:
        entry = self._node.memory().get((self._state.name, part))
        return None if entry is None or self._over(entry) else entry

    def _over(self, entry: Entry) -> bool:
        ttl = self._state.ttl_us
        return ttl is not None and self._node.moment >= entry.at + ttl

    def _write(self, value: Any, part: Any = None) -> None:
        before = self._find(part)
        at = self._node.moment if before is None else max(before.at, self._node.moment)
        self._node.handed.pop((self._state.name, part), None)
        self._node.memory()[self._state.name, part] = Entry(value, at)

    def _remove(self, part: Any = None) -> None:
        self._node.handed.pop((self._state.name, part), None)
        self._node.memory().pop((self._state.name, part), None)

    def _handed(self, value: Any, part: Any = None) -> Any:
        """A value that the call may change in place: the same for all of the call, until another
        one is set."""
        return self._node.handed.setdefault(
            (self._state.name, part), Handed(self, value, encode_value(value))
        ).value

    def settle(self, handed: Handed, part: Any) -> None:
        """The call is over: a value that was changed in place counts as written."""
        if encode_value(handed.value) != handed.before:
            self._write(handed.value, part)


class ValueHandle(Handle):
    """A ValueState."""

    def get(self) -> Any:
        """The value, or the default."""
        entry = self._find()
        if entry is not None:
            return self._handed(entry.value)
        default = self._state.default if isinstance(self._state, ValueState) else None
        return self._handed(deepcopy(default() if callable(default) else default))

    def set(self, value: Any) -> None:
        """Replace it. A whole number in the place of a float is one."""
        self._write(float(value) if self._state.type is float else deepcopy(value))

    def clear(self) -> None:
        """Forget it."""
        self._remove()


class ListHandle(Handle):
    """A ListState: one entry for all of it."""

    def append(self, item: Any) -> None:
        """One more item."""
        self._write([*self, item])

    def __iter__(self) -> Iterator[Any]:
        entry = self._find()
        return iter([] if entry is None else deepcopy(entry.value))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def clear(self) -> None:
        """Forget all."""
        self._remove()


class MapHandle(Handle):
    """A MapState: entries live each by itself."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of an entry."""
        entry = self._find(check_key(key))
        return default if entry is None else self._handed(entry.value, check_key(key))

    def __getitem__(self, key: Any) -> Any:
        if key not in self:
            raise KeyError(key)
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(value, check_key(key))

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._remove(check_key(key))

    def __contains__(self, key: Any) -> bool:
        return self._find(check_key(key)) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All entries, in the order of their keys as they are stored."""
        keys = [part for name, part in self._node.memory() if name == self._state.name]
        live = sorted((key for key in keys if key in self), key=encode_value)
        return iter([(key, self.get(key)) for key in live])

    def clear(self) -> None:
        """Forget all."""
        for name, part in list(self._node.memory()):
            if name == self._state.name:
                self._remove(part)


def bind(node: CallNode, instance: Computation) -> dict[str, State]:
    """Put handles in the place of the declared states; the declarations by name."""
    found: dict[str, State] = {}
    for base in reversed(type(instance).__mro__):
        found.update(
            {name: value for name, value in vars(base).items() if isinstance(value, State)}
        )
    for name, state in found.items():
        kind = (
            ValueHandle
            if isinstance(state, ValueState)
            else ListHandle
            if isinstance(state, ListState)
            else MapHandle
        )
        instance.__dict__[name] = kind(node, state)
    return found


def remembered(declared: dict[str, State], memory: Memory, watermark: int) -> dict[str, Any]:
    """Every declared state of a key, as who comes at the watermark finds it: the value (or its
    default), a list, or a dict."""
    found: dict[str, Any] = {}
    for name, state in declared.items():
        ttl = state.ttl_us
        parts = {
            part: entry.value
            for (owner, part), entry in memory.items()
            if owner == name and (ttl is None or watermark < entry.at + ttl)
        }
        if isinstance(state, ValueState):
            default = deepcopy(state.default() if callable(state.default) else state.default)
            found[name] = parts.get(None, default)
        elif isinstance(state, ListState):
            found[name] = list(parts.get(None, []))
        else:
            found[name] = parts
    return found
