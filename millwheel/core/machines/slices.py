"""The common base of machines whose windows share their records: cumulative ones, key windows, and
the pieces of divided keys.

A record is added once, to the *slice* of its time, and not to each of the windows that it lies in.
Each machine decides which slices make a window, when it is due, and how a late record corrects it.
See cumulative.py and key_windows.py; here is the one for pieces, which are slices and nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation, Prepared
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.windows.calls import Call
from millwheel.core.windows.contract import (
    Effects,
    KeyState,
    LateRecord,
    Slot,
    TimerEffect,
    Times,
    Windowing,
    rejected,
)
from millwheel.core.windows.lateness import is_complete, is_final, too_late
from millwheel.core.windows.panes import Timing, pane_of
from millwheel.core.windows.state import tag_of, window_of
from millwheel.core.windows.windows import Window, WindowPieces
from millwheel.errors import RecordError

Rows = list[tuple[Prepared, int]]
"""Records of one slice: prepared values and timestamps."""
S = TypeVar("S")


class HasTimer(Protocol):
    """State for which a timer was requested (None: it was not)."""

    timer_at_us: int | None


class SlicedMachine(ABC, Generic[S]):
    """See the head of this file. ``S`` names a slice."""

    last_window = "window"
    """The window that must be final for a record to be too late, in words."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self._lateness_us = windowing.allowed_lateness
        self._accumulation = windowing.accumulation

    @abstractmethod
    def _slice(self, timestamp: int, watermark: int) -> S | None:
        """The slice of a record; None where all of its windows are final. Raises RecordError."""

    @abstractmethod
    def _take_rows(self, slices: Mapping[S, Rows], call: Call) -> None:
        """Take the records of a bundle, by slice."""

    @abstractmethod
    def _slot(self, tag: str) -> Slot | None:
        """The entry of the state that a timer with this tag belongs to."""

    @abstractmethod
    def _due(self, slot: Slot, stored: Any, call: Call) -> None:
        """Process an entry whose timer has come due."""

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        slices: dict[S, Rows] = {}
        for value, timestamp in records:
            try:
                prepared = self._aggregation.prepare(value)
                at = self._slice(timestamp, times.watermark)
            except RecordError as ex:
                effects.rejected.append(rejected(key, value, timestamp, ex))
                continue
            if prepared is FILTERED:
                continue
            if at is None:
                reason = too_late(self.last_window)
                effects.late.append(LateRecord(key, value, timestamp, reason))
            else:
                slices.setdefault(at, []).append((prepared, timestamp))
        if slices:
            self._take_rows(slices, Call(state, key, times, effects))

    def on_timer(
        self,
        state: KeyState,
        key: Key,
        tag: str,
        domain: Domain,
        at: int,
        times: Times,
        effects: Effects,
    ) -> None:
        slot = self._slot(tag)
        stored = None if slot is None else state.get(slot)
        if slot is not None and stored is not None:
            passed = Times(max(times.watermark, at + 1), times.now_us, most=times.most)
            self._due(slot, stored, Call(state, key, passed, effects))

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return []

    def _add_rows(self, acc: Any, rows: Rows) -> Any:
        """The accumulator of a slice (None: it has none yet) with records added."""
        acc = self._aggregation.create() if acc is None else acc
        return self._aggregation.add_many(acc, [row[0] for row in rows], [row[1] for row in rows])

    def _add_acc(self, acc: Any, new: Any) -> Any:
        """The accumulator of a slice with records that were aggregated elsewhere."""
        return new if acc is None else self._aggregation.merge(acc, new)

    def _emit(
        self, call: Call, window: Window, result: Any, timing: Timing, index: int = 0
    ) -> bool:
        """Emit a pane; returns whether another one may follow."""
        last = is_final(window.end, call.times.watermark, self._lateness_us)
        call.effects.panes.append(pane_of(call.key, window, result, timing, index, last))
        return not last

    def _take_back(
        self, call: Call, window: Window, result: Any, panes: int, on_time: bool
    ) -> None:
        """Retract the last of the emitted ``panes`` of a window. ``on_time``: the first one was on
        time."""
        timing = Timing.ON_TIME if panes == 1 and on_time else Timing.LATE
        call.effects.panes.append(
            pane_of(call.key, window, result, timing, panes - 1, False, retraction=True)
        )

    def _wake(self, call: Call, own: HasTimer, tag: str, at: int) -> None:
        """Let the timer of an entry come due at ``at`` or before."""
        if own.timer_at_us is None or own.timer_at_us > at:
            own.timer_at_us = at
            call.effects.timers.append(TimerEffect(call.key, tag, Domain.EVENT, at))

    def _end(self, call: Call, own: HasTimer, tag: str, slot: Slot) -> None:
        """Delete an entry and its timer."""
        if own.timer_at_us is not None:
            call.effects.timers.append(TimerEffect(call.key, tag, Domain.EVENT, None))
        if call.state.get(slot) is not None:
            del call.state[slot]


class PiecesMachine(SlicedMachine[Window]):
    """The machine of a part of a divided key. The state of a key is the accumulator of each open
    piece (see :class:`.WindowPieces`).

    Each piece is emitted once: as the watermark passes its end, or at once if it already has. Which
    records are too late, and for which windows, is decided where the parts of a key come together.
    """

    def __init__(self, aggregation: Aggregation, pieces: WindowPieces) -> None:
        super().__init__(Windowing(pieces), aggregation)
        self._pieces = pieces

    def _slice(self, timestamp: int, watermark: int) -> Window:
        return self._pieces.window(timestamp)

    def _take_rows(self, slices: Mapping[Window, Rows], call: Call) -> None:
        for piece, rows in slices.items():
            if self._pieces.at_once:
                newest = max(timestamp for _, timestamp in rows)
                self._emit_piece(call, piece, self._add_rows(None, rows), newest)
            elif is_complete(piece.end, call.times.watermark):
                self._emit_piece(call, piece, self._add_rows(None, rows), piece.max_timestamp)
            else:
                self._keep(call, piece, rows)

    def _keep(self, call: Call, piece: Window, rows: Rows) -> None:
        stored = call.state.get(piece)
        if stored is None:
            call.effects.timers.append(
                TimerEffect(call.key, tag_of(piece), Domain.EVENT, piece.max_timestamp)
            )
        call.state[piece] = [self._add_rows(None if stored is None else stored[0], rows)]

    def _slot(self, tag: str) -> Window | None:
        return window_of(tag)

    def _due(self, slot: Slot, stored: Any, call: Call) -> None:
        assert isinstance(slot, Window)
        self._emit_piece(call, slot, stored[0], slot.max_timestamp)
        del call.state[slot]

    def _emit_piece(self, call: Call, piece: Window, acc: Any, timestamp: int) -> None:
        result = self._aggregation.result(acc)
        call.effects.panes.append(pane_of(call.key, piece, result, last=False, at=timestamp))

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        windows = [Window(*slot) for slot in slots if isinstance(slot, tuple)]
        return sorted(windows, key=lambda window: (window.end, window.start))
