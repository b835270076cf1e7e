"""Lets the results of one record span several commits.

A record of a join may have any number of partners under its key. It makes as many results as the
bundle has room for. Then it is stored with a cursor, the point from which it goes on in the next
bundle, and the records that come for its key meanwhile wait behind it, in their order: so the rows
of the key stay as they are until all results are emitted, which are those of one step. A timer
holds the watermark at the earliest record of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

from millwheel.api import Computation, MapState
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain, Record
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.state.stored_types import Certain
from millwheel.errors import InvariantError

SUSPENDED_TAG = "\0s"
"""The tag of the timers for a key whose records go on in the next bundle."""
RESULT_BYTES = 200
"""Bytes of a result besides its records, in memory and on the way."""
ROOM_BYTES = 16 << 20
"""Bytes of results that a join makes in one part of a bundle. They are in memory until they are
sent, and in its commit."""
LEAST_BYTES = 4 << 10
"""Bytes of results that each record may make, however full the bundle is: those with few partners
do not wait."""
_MOST_WAITING = 1_000
"""Most records of a key that wait; behind more of them, new records stay in the inbox."""
_ALL = 0  # the only entry of the state `waits`


class Cursor(Certain, array_like=True):
    """The point from which a record goes on: behind the ``entry`` of a row, or behind a number of
    rows without entries (``few``), or of ``lists`` of rows; and then behind a number of ``times``.
    ``step`` is its current step."""

    step: int = 0
    few: int = 0
    entry: bytes | None = None
    times: int = 0
    lists: int = 0

    def begin(self, step: int) -> None:
        """Begin a step: the one before is over."""
        self.step, self.few, self.entry, self.times = step, 0, None, 0


class Suspended(Certain, array_like=True):
    """A record that waits to begin, or to go on, behind those before it. ``value`` is encoded.
    ``came``: the watermark (µs) as it came, which decides whether it is late."""

    stream: str
    at: int
    value: bytes
    cursor: Cursor
    came: int


class Waits(Certain, array_like=True):
    """The numbers of the records of a key that wait, up to ``end``; and the time (µs) before which
    none of them lies."""

    first: int
    end: int
    hold: int


class Resumed(Record[Any], gc=False):
    """A record that goes on."""

    number: int
    cursor: Cursor
    came: int


class Suspension:
    """The state that calls of one shard share which may go on in later bundles. ``room``: bytes of
    results that may still be made in this part of a bundle. ``crowded``: keys of which so many
    records wait that no more should come."""

    def __init__(self) -> None:
        self.room = self.most_room = ROOM_BYTES
        self.crowded: set[Key] = set()
        self._timers: dict[Domain, TimerQueue] = {}
        self._holds: dict[Key, int] = {}
        """Keys that were suspended in this bundle, and the earliest time (µs) of their records."""
        self._postponed: list[Due] = []

    def begin(self, timers: dict[Domain, TimerQueue]) -> None:
        """Start of a bundle, or of another try of it."""
        self.room, self._timers = self.most_room, timers
        self._holds.clear()
        self._postponed.clear()

    def has(self, key: Key) -> bool:
        """Whether records of a key go on in the next bundle."""
        queue = self._timers[Domain.PROCESSING]
        return bool(queue) and queue.get(key, SUSPENDED_TAG) is not None

    def keys(self) -> set[Key]:
        """The keys whose records go on in this bundle."""
        queue = self._timers[Domain.PROCESSING]
        return {key for key, tag, _ in queue.items() if tag == SUSPENDED_TAG} if queue else set()

    def count(self, key: Key, waiting: int) -> None:
        """Note how many records of a key wait."""
        if waiting > _MOST_WAITING:
            self.crowded.add(key)
        else:
            self.crowded.discard(key)

    def suspend(self, key: Key, at: int) -> None:
        """Let the records of a key go on in the next bundle. The watermark is held at ``at`` (µs)
        until :meth:`resume`."""
        self._timers[Domain.PROCESSING].set(key, SUSPENDED_TAG, MIN_TIME)
        self._holds[key] = at

    def resume(self, key: Key) -> None:
        """Note that no record of a key waits any more."""
        for queue in self._timers.values():
            queue.cancel(key, SUSPENDED_TAG)
        self._holds.pop(key, None)

    def postpones(self, due: Due) -> bool:
        """Whether a timer by event time comes before its time: records of its key are still to be
        met by others that wait. It comes again in the next bundle."""
        if due.domain is Domain.PROCESSING or not self.has(due.key):
            return False
        self._postponed.append(due)
        return True

    def hold(self) -> None:
        """Hold the watermark by timers of event time: the bundle is over."""
        # Not before: where the watermark has passed them they would fire in this bundle again.
        for due in self._postponed:
            self._timers[Domain.EVENT].set(due.key, due.tag, due.at, due.cause)
        for key, at in self._holds.items():
            if self.has(key):  # an attempt that was taken back may have suspended it
                self._timers[Domain.EVENT].set(key, SUSPENDED_TAG, at)


class Suspending(Computation):
    """A computation whose records may go on in later bundles."""

    counts_as = 1
    """The weight of a record that waits: those that take much state soon stop the inbox."""
    waits: MapState[int, Waits] = MapState(int, Waits)
    waiting: MapState[int, Suspended] = MapState(int, Suspended)

    @abstractmethod
    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Work on a record from where ``cursor`` is, while there is room in the bundle; False if
        something is left. The cursor is then where it goes on."""

    def encode_waiting(self, number: int, value: Any) -> bytes:
        """Encode the value of a record that waits under this number."""
        return encode_value(value)

    def decode_waiting(self, number: int, data: bytes) -> Any:
        """The same value again."""
        return decode_value(data)

    def process_record(self, ctx: Any, record: Record) -> None:
        """Begin a record, or go on with it."""
        if type(record) is Resumed:
            cursor = msgspec.structs.replace(record.cursor)  # there may be a second attempt
            watermark = ctx.watermark
            ctx.as_of(record.came)
            try:
                if not self.go_on(ctx, record, cursor):
                    self._wait(ctx, record, cursor, record.number)
            finally:
                ctx.watermark = watermark
        elif ctx.suspension.has(ctx.key):
            self._wait(ctx, record, Cursor())
        else:
            suspension = ctx.suspension
            suspension.room = max(suspension.room, LEAST_BYTES)
            cursor = Cursor()
            if not self.go_on(ctx, record, cursor):
                self._wait(ctx, record, cursor)

    def resumed(self, ctx: Any) -> Iterator[Resumed]:
        """The records of the current key that wait, one after the other, while there is room."""
        key, suspension = ctx.key, ctx.suspension
        while (waits := self.waits.get(_ALL)) is not None:
            suspension.count(key, (waits.end - waits.first) * self.counts_as)
            if suspension.room <= 0:
                suspension.suspend(key, waits.hold)
                return
            number = waits.first
            # They come in the order of their numbers, each once.
            if number >= waits.end:
                raise InvariantError(f"record {number} of {key!r} waits, of {waits.end}")
            each = self.waiting[number]
            del self.waiting[number]
            if number + 1 < waits.end:
                self.waits[_ALL] = Waits(number + 1, waits.end, waits.hold)
                suspension.suspend(key, waits.hold)
            else:
                del self.waits[_ALL]
                suspension.resume(key)
            value = self.decode_waiting(number, each.value)
            yield Resumed(key, value, each.at, each.stream, number, each.cursor, each.came)
            ctx.point(key, each.at)
        suspension.count(key, 0)
        suspension.resume(key)

    def _wait(self, ctx: Any, record: Record, cursor: Cursor, number: int | None = None) -> None:
        """Store a record that waits. ``number``: that of one that has waited before, and now is the
        first again."""
        at = record.timestamp
        waits = self.waits.get(_ALL)
        if number is None:
            number = 0 if waits is None else waits.end
            end = number + 1
        else:
            end = number + 1 if waits is None else waits.end
        first = number if waits is None else min(waits.first, number)
        hold = at if waits is None else min(waits.hold, at)
        # One that goes on is the first in the queue: behind another, it would be overtaken.
        if not first <= number < end:
            raise InvariantError(f"record {number} of {ctx.key!r} waits behind {first} to {end}")
        self.waits[_ALL] = Waits(first, end, hold)
        value = self.encode_waiting(number, record.value)
        self.waiting[number] = Suspended(record.stream, at, value, cursor, ctx.watermark)
        ctx.suspension.count(ctx.key, (end - first) * self.counts_as)
        ctx.suspension.suspend(ctx.key, hold)
