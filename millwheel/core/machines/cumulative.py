"""The machine of cumulative windows: one accumulator per period that grows step by step.

A record belongs to every window of its period that ends after it: up to 1440 for a day by the
minute. Instead of adding it to all of them, it is added to one *slice*, that of the first of these
windows that is not final. As the watermark passes the end of a window, its result is the previous
result plus the slices since then. Slices stay apart for the allowed lateness, so that a late record
can correct each window that is not final.

Where the watermark rises far at once, hundreds of windows are due. A timer fires as many as one
call is allowed to, and is set again for the next one, whose time has passed: until then it holds
the watermark.

The results equal those of the same windows kept one by one under the default trigger, at a lower
cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.machines.slices import Rows, SlicedMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call, Group
from millwheel.core.windows.contract import MANY, Effects, KeyState, Slot, Times, Windowing
from millwheel.core.windows.lateness import is_complete, is_final
from millwheel.core.windows.panes import Accumulation, Timing
from millwheel.core.windows.state import tag_of, window_of
from millwheel.core.windows.windows import Cumulative, Window

_Piece = TypeVar("_Piece")


class Period(msgspec.Struct, array_like=True):
    """One period of one key.

    ``acc`` holds the records of final windows, ``slices`` [end, accumulator] of the others, in
    order. ``first`` is the end of the first window with records. Windows that end at or before
    ``done`` have had their on-time pane; ``emitted`` is [panes so far, was on time] by window end,
    while late records may still correct them.
    """

    acc: Any
    first: int
    done: int
    slices: list[list[Any]] = []
    emitted: dict[int, list[Any]] = {}
    timer_at_us: int | None = None


class CumulativeMachine(SlicedMachine[tuple[Window, int]]):
    """See the head of this file. A slice is identified by its period and its end."""

    last_window = "period"

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Cumulative) -> None:
        super().__init__(windowing, aggregation)
        self._window = window

    # --- records ----------------------------------------------------------------------------------

    def _slice(self, timestamp: int, watermark: int) -> tuple[Window, int] | None:
        base = self._window.base(timestamp)
        if is_final(base.end, watermark, self._lateness_us):
            return None
        return base, self._window.step(base, max(timestamp, watermark - self._lateness_us))

    def _take_rows(self, slices: Mapping[tuple[Window, int], Rows], call: Call) -> None:
        by_base: dict[Window, dict[int, Rows]] = {}
        for (base, end), rows in slices.items():
            by_base.setdefault(base, {})[end] = rows
        for base, rows_by_end in by_base.items():
            self._take(base, rows_by_end, self._add_rows, call)

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """The column path: a bundle's records of one key, already aggregated by step. The window of
        a group is the first window that has its records, and no such window is complete (the caller
        has left out late records)."""
        call = Call(state, key, times, effects)
        by_base: dict[Window, dict[int, Any]] = {}
        for group in groups:
            accs = by_base.setdefault(self._window.base(group.window.start), {})
            accs[group.window.end] = self._add_acc(accs.get(group.window.end), group.acc)
        for base, accs in by_base.items():
            self._take(base, accs, self._add_acc, call)

    def _take(
        self,
        base: Window,
        slices: Mapping[int, _Piece],
        add: Callable[[Any, _Piece], Any],
        call: Call,
    ) -> None:
        """Add records, by the end of their slice; correct windows that fired without them. ``add``
        also gets None, for a slice without any."""
        watermark = call.times.watermark
        own = self._period(call.state.get(base), base, min(slices), watermark)
        self._advance(base, own, call)
        late = {end: piece for end, piece in slices.items() if is_complete(end, watermark)}
        ends = self._corrected(base, own, min(late), watermark) if late else []
        before = [self._until(own, end) if end in own.emitted else None for end in ends]
        held = {piece[0]: piece for piece in own.slices}
        for end, piece in slices.items():
            own_piece = held.setdefault(end, [end, None])
            own_piece[1] = add(own_piece[1], piece)
        if len(held) > len(own.slices):
            own.slices = sorted(held.values(), key=itemgetter(0))
        own.first = min(own.first, *slices)
        for end, old in zip(ends, before, strict=True):
            new = None
            if self._accumulation is Accumulation.DISCARDING:
                for slice_end, piece in late.items():
                    new = add(new, piece) if slice_end <= end else new
            self._correct(base, end, own, old, new, call)
        self._store(base, own, call)

    def _until(self, own: Period, end: int) -> Any:
        """A new accumulator of everything up to the end of a window."""
        acc = self._aggregation.merge(self._aggregation.create(), own.acc)
        for piece_end, piece in own.slices:
            if piece_end <= end:
                acc = self._aggregation.merge(acc, piece)
        return acc

    # --- time -------------------------------------------------------------------------------------

    def _slot(self, tag: str) -> Window | None:
        return window_of(tag)

    def _due(self, slot: Slot, stored: Any, call: Call) -> None:
        assert isinstance(slot, Window)
        own = self._period(stored, slot, 0, 0)
        own.timer_at_us = None
        self._advance(slot, own, call, call.times.most)
        self._store(slot, own, call)

    def due_with(self, at: int, watermark: int) -> int:
        """The most windows that are due with a timer that was set for ``at``."""
        window = self._window
        return min(max(watermark - at, 0), window.size) // window.every + 1

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        windows = set()
        for slot in slots:
            if isinstance(slot, tuple):
                base = Window(*slot)
                own = self._period(state.get(slot), base, 0, 0)
                ends = {*self._ahead(base, own, MAX_TIME), *own.emitted}
                windows |= {Window(base.start, end) for end in ends}
        return sorted(windows, key=lambda window: (window.end, window.start))

    def _advance(self, base: Window, own: Period, call: Call, most: int = MANY) -> None:
        """Fire the windows whose end the watermark has passed since the last call, the first
        ``most`` of them."""
        watermark = call.times.watermark
        ends = list(islice(self._ahead(base, own, watermark), most))
        if ends:
            due = bisect_right(own.slices, ends[-1], key=itemgetter(0))
            # Final slices are never needed apart again, so the sum may grow in place.
            start = (
                own.acc
                if not self._lateness_us
                else self._aggregation.merge(self._aggregation.create(), own.acc)
            )
            # the result may be the accumulator itself, which grows
            before = deepcopy(self._aggregation.result(start))
            whole, after = self._aggregation.running(start, [acc for _, acc in own.slices[:due]])
            for end in ends:
                behind = bisect_right(own.slices, end, hi=due, key=itemgetter(0))
                result = after[behind - 1] if behind else before
                self._fire(base, end, own, result, Timing.ON_TIME, call)
            if not self._lateness_us:
                own.acc, own.slices = whole, own.slices[due:]
        own.done = ends[-1] if len(ends) == most else max(own.done, min(watermark, base.end))

    def _ahead(self, base: Window, own: Period, watermark: int) -> Iterator[int]:
        """Ends of the windows to fire, up to the watermark."""
        if self._window.changes:
            yield from [end for end, _ in own.slices if own.done < end <= watermark]
            return
        end = max(own.first, self._window.step(base, own.done))
        while own.done < end <= watermark:
            yield end
            if end >= base.end:
                return
            end = self._window.step(base, end)

    def _corrected(self, base: Window, own: Period, first: int, watermark: int) -> list[int]:
        """Ends of the windows that late records change, of which the first ends at ``first``."""
        if self._window.changes:
            return sorted({first, *(end for end in own.emitted if end > first)})
        ends = [first]
        while ends[-1] < base.end and self._window.step(base, ends[-1]) <= watermark:
            ends.append(self._window.step(base, ends[-1]))
        return ends

    # --- emitting ---------------------------------------------------------------------------------

    def _correct(self, base: Window, end: int, own: Period, old: Any, new: Any, call: Call) -> None:
        """Fire a window again. ``old`` is its accumulator before (None: it has not fired), ``new``
        the present one (None: made of the slices)."""
        if self._accumulation is Accumulation.RETRACTING and old is not None:
            result = self._aggregation.result(old)
            self._take_back(call, Window(base.start, end), result, *own.emitted[end])
        acc = self._until(own, end) if new is None else new
        self._fire(base, end, own, self._aggregation.result(acc), Timing.LATE, call)

    def _fire(
        self, base: Window, end: int, own: Period, result: Any, timing: Timing, call: Call
    ) -> None:
        count, on_time = own.emitted.get(end, (0, timing is Timing.ON_TIME))
        if self._emit(call, Window(base.start, end), result, timing, count):
            own.emitted = {**own.emitted, end: [count + 1, on_time]}

    # --- state ------------------------------------------------------------------------------------

    def _period(self, stored: Any, base: Window, first: int, watermark: int) -> Period:
        if stored is None:
            done = max(base.start, min(watermark, base.end))
            return Period(self._aggregation.create(), first, done)
        return stored if type(stored) is Period else Period(*stored)

    def _fold(self, own: Period, watermark: int) -> None:
        """Merge the slices of final windows into one."""
        final, lateness_us = 0, self._lateness_us
        while final < len(own.slices) and is_final(own.slices[final][0], watermark, lateness_us):
            if own.slices[final][0] > own.done:
                break  # its window is due, but has not fired
            own.acc = self._aggregation.merge(own.acc, own.slices[final][1])
            final += 1
        if final:
            own.slices = own.slices[final:]
        if own.emitted:
            own.emitted = {
                end: emitted
                for end, emitted in own.emitted.items()
                if not is_final(end, watermark, self._lateness_us)
            }

    def _store(self, base: Window, own: Period, call: Call) -> None:
        watermark = call.times.watermark
        self._fold(own, watermark)
        if own.done >= base.end and is_final(base.end, watermark, self._lateness_us):
            self._end(call, own, tag_of(base), base)
            return
        end = next(self._ahead(base, own, MAX_TIME), None)
        at = min(base.end - 1 + self._lateness_us, MAX_TIME - 1) if end is None else end - 1
        self._wake(call, own, tag_of(base), at)
        call.state[base] = own
