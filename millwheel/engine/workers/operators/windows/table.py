"""The contract of a table of windows, and its parts in rows: cells by key and slot, a cache over
the store that is written through once for each call; the records of one key on their way into its
windows; the holds of windows on the output watermark; and their timers at percentile watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

import msgspec

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.stored_form import StoredForm
from millwheel.core.formats.codec import MOST_NESTING, nests_too_deeply
from millwheel.core.formats.store_layout import (
    HOLD,
    SHARE_TIMER,
    WINDOW,
    key_prefix,
    number8,
    number_from8,
    pack,
    parse_timer,
)
from millwheel.core.model.keys import Key, KeyHash, key_from_bytes, key_hash
from millwheel.core.model.limits import over
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MIN_TIME, held_at
from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.windows.contract import Effects, HoldEffect, RejectedRecord, TimerEffect
from millwheel.core.windows.panes import Retraction, as_retraction
from millwheel.core.windows.state import share_of
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.bundle.bundle import UNCARRIABLE, Hold
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.window_sets import WindowSets
from millwheel.errors import invariant

_ABSENT: Any = object()
_LEVELS_AROUND = 50
"""Records that may come are within the limit; a window keeps them in lists."""


class WindowTable(Protocol):
    """The open windows of a shard in one form: cells by key and window in rows, or segments in
    columns.

    A bundle fires the windows that the watermark has passed, then adds groups, and writes its
    changes. The two forms differ in this: cells are touched key by key, fire by the timers of the
    shard, and fail for one key; segments take all groups of a bundle or none (Inexact), and fire
    together. The questions between bundles are the same for either form, and declared here.
    """

    def due_at(self) -> int:
        """A bundle has something to do, without records, once the watermark has passed this."""

    def hold(self, now_us: int) -> Hold:
        """The hold on the output watermark: the earliest result to come."""

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state and still take records."""

    def validate(self, state: StoreView) -> None:
        """Raise InvariantError unless ``state``, the store, agrees with memory. For tests, between
        bundles."""


class WindowCells:
    """The cache over the window state of all keys: (key, slot) to plain data, written through at
    the end of a bundle."""

    def __init__(self, overlay: Overlay, limit: int, most: int, hashed: KeyHash = key_hash) -> None:
        self._hashed = hashed
        self._overlay = overlay
        self._most = most
        self._limit = limit
        self._cells: dict[tuple[Key, Any], Any] = {}
        self._dirty: dict[tuple[Key, Any], None] = {}
        self._prefixes: dict[Key, bytes] = {}
        self._sets: dict[tuple[Key, Any], WindowSets] = {}
        self._at: tuple[Key, Any] = ("", None)
        self._form = StoredForm(self._sets_here)
        self.unstorable: list[tuple[Key, Any, str]] = []
        """(key, slot, reason) of cells that could not be written. They are reset to their state
        before the last flush."""

    def of(self, key: Key) -> KeyCells:
        """The slots of one key, as a window machine uses them."""
        return KeyCells(self, key)

    def load(self, key: Key, slot: Any) -> Any:
        cell = (key, slot)
        value = self._cells.get(cell, _ABSENT)
        if value is _ABSENT:
            data = self._overlay.get(self._store_key(key, slot))
            value = None
            if data is not None:
                self._at = cell
                value = self._form.decode(data)
                if cell in self._sets:
                    self._sets[cell].loaded()
            self._cells[cell] = value
        return value

    def among(self, keys: Sequence[Key], slot: Any) -> list[Key]:
        """The given keys that have a value in a slot, as a bundle begins. One call asks the store;
        the values are likely to be read."""
        new = [key for key in keys if (key, slot) not in self._cells]
        stored = self._overlay.get_many([self._store_key(key, slot) for key in new])
        held = {key for key, data in zip(new, stored, strict=True) if data is not None}
        return [key for key in keys if key in held or self._cells.get((key, slot)) is not None]

    def _sets_here(self) -> WindowSets:
        """The entries of the sets of the value that is being encoded or decoded."""
        sets = self._sets.get(self._at)
        if sets is None:
            sets = self._sets[self._at] = WindowSets(self._store_key(*self._at), self._overlay.get)
        return sets

    def save(self, key: Key, slot: Any, value: Any) -> None:
        if (key, slot) not in self._cells:  # only its stored value names its entries
            self.load(key, slot)
        self._cells[key, slot] = value
        self._dirty[key, slot] = None

    def flush(self) -> None:
        """Write the changes into the overlay, and trim the cache."""
        gone: list[bytes] = []
        for key, slot in self._dirty:
            value = self._cells[key, slot]
            if value is None:
                gone.append(self._store_key(key, slot))
                gone += self._forget((key, slot))
            else:
                gone += self._put(key, slot, value)
        # last: a set may have moved from one window to another, which then reads its entries
        for store_key in gone:
            self._overlay.delete(store_key)
        self._dirty.clear()
        if len(self._cells) > self._limit:
            for cell in list(self._cells)[: len(self._cells) - self._limit // 2]:
                self._forget(cell)
        if len(self._prefixes) > self._limit:
            self._prefixes.clear()

    def validate(self, state: StoreView) -> None:
        """Raise InvariantError unless ``state`` agrees with the cache. For tests, between
        bundles."""
        invariant(not self._dirty, f"cells that have changed are not written: {list(self._dirty)}")
        for cell, value in self._cells.items():
            stored = state.get(self._store_key(*cell))
            if value is None or stored is None:
                invariant(value is stored, f"the cell {cell} is {value}, stored is {stored!r}")
            # to encode those again would note their new entries as written
            elif cell not in self._sets:
                data = self._form.encode(value)
                invariant(data == stored, f"the cell {cell} is {data!r}, stored is {stored!r}")

    def _put(self, key: Key, slot: Any, value: Any) -> list[bytes]:
        """Write a value and the new entries of its sets. Returns the store keys of those that it
        has no more."""
        cell = self._at = (key, slot)
        try:
            data = self._form.encode(value)
            if len(data) > self._most:
                raise ValueError(over("state", "a value", len(data), self._most))
            if nests_too_deeply(data, MOST_NESTING + _LEVELS_AROUND):
                raise ValueError(f"it nests more than {MOST_NESTING} levels deep")
        except UNCARRIABLE as ex:  # a user's aggregator or trigger made it
            # The store still has the value before. If the cache kept this one, results would hold
            # records that a new owner does not have. See
            # test_what_cannot_be_stored_is_what_it_was_before.
            self._forget(cell)
            self.unstorable.append((key, slot, str(ex)))
            return []
        self._overlay.put(self._store_key(key, slot), data)
        return self._sets[cell].write_to(self._overlay) if cell in self._sets else []

    def _forget(self, cell: tuple[Key, Any]) -> list[bytes]:
        """Drop a value from the cache. Returns the store keys of the entries of its sets."""
        del self._cells[cell]
        sets = self._sets.pop(cell, None)
        return [] if sets is None else sets.keys()

    def drop(self, key: Key) -> None:
        """Drop a key's cached changes since the last flush: they may be incomplete."""
        for cell in [cell for cell in self._cells if cell[0] == key]:
            self._forget(cell)
            self._dirty.pop(cell, None)

    def _store_key(self, key: Key, slot: Any) -> bytes:
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = key_prefix(WINDOW, key, self._hashed(key))
        return prefix + pack(slot)


class KeyCells:
    """The KeyState of one key."""

    __slots__ = ("_cells", "_key")

    def __init__(self, cells: WindowCells, key: Key) -> None:
        self._cells = cells
        self._key = key

    def get(self, slot: Any, default: Any = None) -> Any:
        value = self._cells.load(self._key, slot)
        return default if value is None else value

    def __setitem__(self, slot: Any, value: Any) -> None:
        self._cells.save(self._key, slot, value)

    def __delitem__(self, slot: Any) -> None:
        self._cells.save(self._key, slot, None)


class KeyRecords:
    """The records of one key that have come; of several inputs, the stream of each; where
    productions have ids, the cause that each is."""

    __slots__ = ("causes", "records", "streams")

    def __init__(self) -> None:
        self.records: list[tuple[Any, int]] = []
        self.streams: list[str] = []
        self.causes: list[Cause] = []

    def name_streams(self, effects: Effects) -> None:
        """Name the stream by which refused records came."""
        for number, bad in enumerate(effects.rejected):
            effects.rejected[number] = msgspec.structs.replace(bad, stream=self._stream_of(bad))

    def _stream_of(self, bad: RejectedRecord) -> str:
        taken_back = Retraction(bad.value) if type(bad.value) is not Retraction else bad.value
        for (value, at), stream in zip(self.records, self.streams, strict=False):
            if at == bad.timestamp and (value is bad.value or as_retraction(value) == taken_back):
                return stream
        return ""


class ShareTimers:
    """The timers at percentile watermarks, one queue per share. ``passed`` maps each share to its
    percentile watermark of the input (µs), and is kept up to date by the runtime."""

    def __init__(
        self, overlay: Overlay, passed: Mapping[float, int], hashed: KeyHash = key_hash
    ) -> None:
        self._hashed = hashed
        self._overlay = overlay
        self._queues: dict[float, TimerQueue] = {}
        self.passed = passed
        for key, tag, at in _read(SHARE_TIMER, overlay):
            self._queue(share_of(tag) or 1.0).set(key, tag, at)
        for queue in self._queues.values():
            queue.take_changes()  # entries that were read are not written again

    def set(self, timer: TimerEffect) -> None:
        """Set or cancel a timer with a share. Its tag names the share."""
        # The next owner has the tag alone: in another queue, a timer would fire by another
        # watermark, and never be found to be cancelled.
        invariant(
            (share_of(timer.tag) or 1.0) == (timer.share or 1.0),
            f"the timer {timer.tag} of {timer.key!r} is at the share {timer.share}",
        )
        queue = self._queue(timer.share or 1.0)
        if timer.at is None:
            queue.cancel(timer.key, timer.tag)
        else:
            queue.set(timer.key, timer.tag, timer.at)

    def due(self) -> bool:
        """Whether :meth:`pop_due` would find something."""
        return any(queue.earliest < self._clock(share) for share, queue in self._queues.items())

    def pop_due(self) -> Iterator[Due]:
        """The timers whose percentile watermark has passed their time, removed."""
        for share, queue in list(self._queues.items()):
            while timer := queue.pop_due(self._clock(share)):
                yield timer

    def write(self) -> None:
        """Write the changes into the commit."""
        for queue in self._queues.values():
            # In the store, because the window's own timer comes only with the low watermark:
            # without this entry a new owner emits no early pane. See
            # test_a_crash_loses_no_timer_and_doubles_no_pane.
            for (key, tag), at in queue.take_changes().items():
                store_key = key_prefix(SHARE_TIMER, key, self._hashed(key)) + b"e" + tag.encode()
                if at is None:
                    self._overlay.delete(store_key)
                else:
                    self._overlay.put(store_key, number8(at))

    def validate(self, state: StoreView) -> None:
        """Raise InvariantError unless ``state`` has the same timers. For tests, between bundles."""
        for queue in self._queues.values():
            queue.validate()
        in_memory = {timer for queue in self._queues.values() for timer in queue.items()}
        _same_timers("timers at percentile watermarks", in_memory, _read(SHARE_TIMER, state))

    def _queue(self, share: float) -> TimerQueue:
        return self._queues.setdefault(share, TimerQueue(Domain.EVENT))

    def _clock(self, share: float) -> int:
        return self.passed.get(share, MIN_TIME)


class WindowHolds:
    """The holds of all windows that have panes to emit. ``hashed`` is the hash of the keys of the
    node."""

    def __init__(self, overlay: Overlay, hashed: KeyHash) -> None:
        self._overlay = overlay
        self._hashed = hashed
        self._queue = TimerQueue(Domain.EVENT)
        for timer in _read(HOLD, overlay):
            self._queue.set(*timer)
        # entries that were read are not written again
        self._queue.take_changes()

    def take(self, effects: Iterable[HoldEffect]) -> None:
        """Set and cancel the holds that windows request."""
        for hold in effects:
            if hold.at is None:
                self._queue.cancel(hold.key, hold.tag)
            else:
                self._queue.set(hold.key, hold.tag, hold.at)

    def lowest(self) -> Hold:
        """The lowest hold, which holds the watermark."""
        first = self._queue.first()
        if first is None:
            return Hold()
        return Hold(
            held_at(first.at),
            f"window {first.tag} of key {first.key!r}, which outputs at {first.at}",
        )

    def validate(self, state: StoreView) -> None:
        """Raise InvariantError unless ``state`` has the same holds. For tests, between bundles."""
        self._queue.validate()
        _same_timers("holds of windows", set(self._queue.items()), _read(HOLD, state))

    def write(self) -> None:
        """Make what has changed part of the commit."""
        for (key, tag), at in self._queue.take_changes().items():
            store_key = key_prefix(HOLD, key, self._hashed(key)) + b"e" + tag.encode()
            if at is None:
                self._overlay.delete(store_key)
            else:
                self._overlay.put(store_key, number8(at))


def _read(family: bytes, state: StoreView) -> Iterator[tuple[Key, str, int]]:
    """The stored times of a family, as (key, tag, at)."""
    for store_key, data in state.scan(family):
        key, _, tag = parse_timer(store_key)
        yield key_from_bytes(key), tag, number_from8(data)


def _same_timers(
    what: str, in_memory: Set[tuple[Key, str, int]], stored: Iterable[tuple[Key, str, int]]
) -> None:
    read = set(stored)
    invariant(
        read == in_memory,
        f"{what}: only stored are {read - in_memory}, only in memory {in_memory - read}",
    )
