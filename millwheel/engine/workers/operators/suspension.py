"""Lets the results of one record span several commits.

A record of a join may have any number of partners under its key. It makes as many results as the
bundle has room for. Then it is stored with a cursor, the place from which it goes on in the next
bundle, and the records that come for its key meanwhile wait behind it, in their order: so the rows
of the key stay as they are until all is said, and the results are those of one step. A timer holds
the watermark at the earliest record of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

from millwheel.api import Computation, MapState
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.records import Record
from millwheel.engine.workers.state.stored_types import Certain

RESULT_BYTES = 200
"""Of a result besides its records, in memory and on the way."""
_LEAST_BYTES = 4 << 10
"""Of results that each record may make, however full the bundle is: those with few partners do not
wait."""
_MOST_WAITING = 1_000
"""Records of a key that wait; behind more of them the inbox keeps what comes."""
_ALL = 0  # the only entry of the state `waits`


class Cursor(Certain, array_like=True):
    """From where a record goes on: behind the ``entry`` of a row, or so many rows that have none
    of their own (``few``), and in the row that follows behind so many ``times``. ``step`` is what
    it does with them."""

    step: int = 0
    few: int = 0
    entry: bytes | None = None
    times: int = 0

    def begin(self, step: int) -> None:
        """The step before is over."""
        self.step, self.few, self.entry, self.times = step, 0, None, 0


class Suspended(Certain, array_like=True):
    """A record that goes on, or begins, behind those before it. ``value`` is encoded."""

    stream: str
    at: int
    value: bytes
    cursor: Cursor


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


class Suspending(Computation):
    """A computation whose records may go on in later bundles."""

    suspends = True
    """Whether they may."""
    waits: MapState[int, Waits] = MapState(int, Waits)
    waiting: MapState[int, Suspended] = MapState(int, Suspended)

    @abstractmethod
    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Work on a record from where ``cursor`` is, while there is room in the bundle; False if
        something is left. The cursor is then where it goes on."""

    def process_record(self, ctx: Any, record: Record) -> None:
        """A record comes, or goes on."""
        if type(record) is Resumed:
            cursor = msgspec.structs.replace(record.cursor)  # there may be a second attempt
            if not self.go_on(ctx, record, cursor):
                self._wait(ctx, record, cursor, record.number)
        elif ctx.is_suspended:
            self._wait(ctx, record, Cursor())
        else:
            ctx.room = max(ctx.room, _LEAST_BYTES)
            cursor = Cursor()
            if not self.go_on(ctx, record, cursor):
                self._wait(ctx, record, cursor)

    def resumed(self, ctx: Any) -> Iterator[Resumed]:
        """The records of the current key that wait, one after the other, while there is room."""
        key = ctx.key
        while (waits := self.waits.get(_ALL)) is not None:
            ctx.crowded = waits.end - waits.first > _MOST_WAITING
            if ctx.room <= 0:
                ctx.suspend(waits.hold)
                return
            number = waits.first
            each = self.waiting[number]
            del self.waiting[number]
            if number + 1 < waits.end:
                self.waits[_ALL] = Waits(number + 1, waits.end, waits.hold)
                ctx.suspend(waits.hold)
            else:
                del self.waits[_ALL]
                ctx.resumed()
            yield Resumed(key, decode_value(each.value), each.at, each.stream, number, each.cursor)
            ctx.point(key, each.at)
        ctx.crowded = False
        ctx.resumed()

    def _wait(self, ctx: Any, record: Record, cursor: Cursor, number: int | None = None) -> None:
        """``number``: that of a record that has waited before, and now is the first again."""
        at = record.timestamp
        waits = self.waits.get(_ALL)
        if number is None:
            number = 0 if waits is None else waits.end
            end = number + 1
        else:
            end = number + 1 if waits is None else waits.end
        first = number if waits is None else min(waits.first, number)
        hold = at if waits is None else min(waits.hold, at)
        self.waits[_ALL] = Waits(first, end, hold)
        value = encode_value(record.value)
        self.waiting[number] = Suspended(record.stream, at, value, cursor)
        ctx.crowded = end - first > _MOST_WAITING
        ctx.suspend(hold)
