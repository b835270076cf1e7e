"""The states of one computation in one shard, for the current key: read through a cache, written
once a bundle.

A value that a callback read and may have changed in place is encoded at the end of the bundle, and
written if its bytes differ from those that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from millwheel.adapters.ports import StoreView
from millwheel.api import Computation, ListState, MapState, State, ValueState
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.keys import Key, stored_key
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.records import NO_LABEL, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import LAST_TIME, MIN_TIME
from millwheel.engine.workers.state.cells import (
    ABSENT,
    TIME_BYTES,
    TTL_TAG,
    Cell,
    Typed,
)
from millwheel.engine.workers.state.handles import ListCells, MapCells, ValueCells
from millwheel.engine.workers.state.overlay import Overlay

_WORTH_READING_AHEAD = 64  # keys of a bundle from which one read of them all is faster
Change = tuple[Typed, Cell, bytes | None]
"""A cell of a handle, and its current stored value (None: absent)."""


class Handed(NamedTuple):
    """The value that the current call has read and may change in place; ``before``: its encoding at
    that time."""

    owner: Typed
    cell: Cell
    value: Any
    before: bytes


class KeyedState:
    """All handles of one computation instance in one shard, and their current key.

    ``timestamp`` is the time of the current call, by which times to live are judged. It is never
    before ``clock``: a record behind the watermark counts as of the watermark, so that what it
    writes lives on. ``tags`` stands before the tags of the system's own timers.
    """

    def __init__(
        self,
        instance: Computation,
        overlay: Overlay,
        cache_entries: int,
        most: int = DEFAULTS.state,
        tags: str = "",
    ) -> None:
        self.overlay = overlay
        self.most = most
        self.key: Key = None
        self.timestamp = 0
        self.clock = MIN_TIME
        self._timers = TimerQueue(Domain.EVENT)
        self._tags = tags
        self.handed: dict[int, Handed] = {}
        self.unsettled = False
        """Work is left for the end of the current call, for :meth:`settle` or for the code that set
        this."""
        self._cache_entries = cache_entries
        self._records = 0
        self.handles = {
            name: self._bind(instance, name, state)
            for name, state in _declared(type(instance)).items()
        }
        self.ages = any(handle.ttl_us is not None for handle in self.handles.values())
        """Some of it has a time to live."""

    def begin(self, timers: TimerQueue) -> None:
        """Start of a bundle. ``timers`` are those by event time."""
        self._timers, self.clock = timers, MIN_TIME

    def point(self, key: Key, timestamp: int) -> None:
        """Begin a call about this key, at this time."""
        self.key = key
        self.timestamp = timestamp if timestamp > self.clock else self.clock

    def moments(
        self, timestamps: Sequence[int], labels: Iterable[int] | None = None
    ) -> Sequence[int]:
        """The times of the calls for records with these timestamps: not before their labels, where
        they have some."""
        if not self.ages or not timestamps:
            return timestamps
        if labels is not None:
            clocks = (self.clock if label == NO_LABEL else label for label in labels)
            return list(map(max, timestamps, clocks))
        if min(timestamps) >= self.clock:
            return timestamps
        return [max(timestamp, self.clock) for timestamp in timestamps]

    def touch(self, owner: Typed, cell: Cell) -> None:
        """Remember that a cell may have changed in this bundle."""
        cell.dirty = True
        owner.touched.append(cell)

    def hand(self, owner: Typed, cell: Cell, value: Any) -> None:
        """Give the current call a value with a time to live. Whether it changes and so writes the
        value is checked when the call is over: at the end of the bundle it would be unknown which
        call did."""
        if id(cell) not in self.handed:
            self.handed[id(cell)] = Handed(owner, cell, value, owner.encode(value))
            self.unsettled = True

    def settle(self) -> None:
        """End a call: values that it changed in place count as written."""
        handed, self.handed, self.unsettled = self.handed, {}, False
        for owner, cell, value, before in handed.values():
            if owner.encode(value) != before:
                owner.write(cell, value)
                if cell.value is value and not owner.exact(value):
                    owner.settle(cell)

    def look_at(self, tag: str, at: int) -> None:
        """See that :meth:`expire` is called for the current key once the watermark has passed
        ``at``, or before."""
        tag, at = self._tags + tag, min(at, LAST_TIME)
        current = self._timers.get(self.key, tag)
        if current is None or at < current:
            self._timers.set(self.key, tag, at)

    def read_ahead(self, keys: Sequence[Key]) -> None:
        """Read the values that a bundle with these keys is likely to need from the store in one
        call."""
        if len(keys) < _WORTH_READING_AHEAD:
            return
        for handle in self.handles.values():
            if isinstance(handle, ValueCells):
                handle.read_ahead(keys, self._records)
        self._records = len(keys)

    def held(self, keys: Sequence[Key]) -> set[Key]:
        """Which of some keys have a value, as a bundle begins. Their values are read: it is likely
        to ask for them."""
        held: set[Key] = set()
        for handle in self.handles.values():
            if isinstance(handle, ValueCells):
                handle.load(keys)
                held.update(key for key in keys if handle.cells[key].value is not ABSENT)
        return held

    def prefix(self, name: bytes) -> bytes:
        """The beginning of the store keys of the state ``name`` of the current key."""
        return STATE + stored_key(self.key) + name

    def flush(self, only: Typed | None = None) -> None:
        """Write the changes so far, or those of one handle, into the overlay, in the middle of a
        bundle. Raises as :meth:`encoded`, and has then done nothing. A callback may hold values of
        the current key, and change them in place after this too."""
        changes = self.encoded(only)
        self._put(changes)
        for owner in self._owners(only):
            owner.touched.clear()
        own_prefix = self.prefix(b"")
        for owner, cell, _ in changes:
            if cell.store_key.startswith(own_prefix):
                self.touch(owner, cell)

    def encoded(self, only: Typed | None = None) -> list[Change]:
        """The changes, as bytes (None: gone). Raises RecordError for a value over the limit, and as
        encoding does."""
        changes: list[Change] = []
        for owner in self._owners(only):
            for cell in owner.touched:
                if cell.value is ABSENT:
                    changes.append((owner, cell, None))
                    continue
                data = owner.bytes_of(cell)
                if owner.ttl_us is not None:
                    data = cell.at.to_bytes(TIME_BYTES, "big", signed=True) + data
                changes.append((owner, cell, data))
        return changes

    def _owners(self, only: Typed | None) -> Iterable[Typed]:
        return self.handles.values() if only is None else (only,)

    def write(self, changes: list[Change]) -> None:
        """Put the changes from :meth:`encoded` into the overlay at the end of a bundle; trims the
        cache."""
        self._put(changes)
        for owner, cell, _ in changes:
            cell.close(owner.stored.flat)
        for handle in self.handles.values():
            handle.touched.clear()
            handle.trim(self._cache_entries)

    def _put(self, changes: list[Change]) -> None:
        written: dict[bytes, bytes | None] = {}
        for owner, cell, data in changes:
            cell.dirty = False
            if data != cell.written:
                owner.held += len(data or b"") - len(cell.written or b"")
                written[cell.store_key] = cell.written = data
                cell.data = data if owner.ttl_us is None or data is None else data[TIME_BYTES:]
        self.overlay.update(written)

    def forget(self) -> None:
        """Drop the whole cache: after a failed callback nothing in memory is to be trusted."""
        self.handed, self.unsettled = {}, False
        for handle in self.handles.values():
            handle.touched.clear()
            handle.trim(0)

    def expire(self, tag: str, at: int) -> None:
        """Remove entries that were not written for their time to live: the system timer of the
        current key is due."""
        handle = self.handles.get(tag[len(TTL_TAG) :])
        # else the class has lost the declaration since
        if handle is not None and handle.ttl_us is not None:
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
    states: dict[str, State] = {}
    for base in reversed(kind.__mro__):
        states.update(
            {name: value for name, value in vars(base).items() if isinstance(value, State)}
        )
    return states


def callback_state(
    kind: type[Computation], store: StoreView, key: Key, now_us: int
) -> dict[str, Any]:
    """Every declared state of a key, as a call at ``now_us`` finds it: a value (or its default), a
    list or a dict."""
    state = KeyedState(object.__new__(kind), Overlay(store), cache_entries=0)
    state.point(key, now_us)
    values: dict[str, Any] = {}
    for name, handle in state.handles.items():
        declared = _declaration(kind, name)
        if isinstance(declared, ValueState):
            values[name] = handle.get()
        elif isinstance(declared, ListState):
            values[name] = list(handle)
        else:
            values[name] = dict(handle.items())
    return values


def _declaration(kind: type, name: str) -> Any:
    """The declaration of a state, wherever among the bases it stands."""
    return next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
