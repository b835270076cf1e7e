"""The machine of cumulative windows: one accumulator per period that grows step by step.

A record belongs to every window of its period that ends after it: up to 1440 for a day by the minute. Instead of adding
it to all of them, it is added to one *slice*, that of the first of these windows that is not final. As the watermark
passes the end of a window, its result is the previous result plus the slices since then. Slices stay apart for the
allowed lateness, so that a late record can correct each window that is not final.

Where the watermark rises far at once, hundreds of windows are due. A timer fires as many as its call may, and is set
again for the next one, whose time has passed: until then it holds the watermark.

The results equal those of the same windows kept one by one under the default trigger, at a lower cost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windowing.calls import Call, Group
from millwheel.core.windowing.contract import (
    MANY,
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
from millwheel.core.windows.panes import Accumulation, Pane, Timing
from millwheel.core.windows.tags import tag_of, window_of
from millwheel.core.windows.windows import Cumulative, Window
from millwheel.errors import RecordError

_Rows = list[tuple[Any, int]]


class Period(msgspec.Struct, array_like=True):
    """One period of one key.

    ``acc`` holds the records of final windows, ``slices`` [end, accumulator] of the others, in order. ``first`` is the
    end of the first window with records. Windows that end at or before ``done`` have had their on-time
    pane; ``emitted`` is [panes so far, was on time] by window end, while late records may still correct them.
    """

    acc: Any
    first: int
    done: int
    slices: list[list[Any]] = []
    emitted: dict[int, list[Any]] = {}
    timer_at_us: int | None = None


class CumulativeMachine:
    """See the head of this file."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Cumulative) -> None:
        self._window = window
        self._aggregation = aggregation
        self._lateness_us = windowing.allowed_lateness
        self._accumulation = windowing.accumulation

    # --- records ------------------------------------------------------------------------------------------

    def on_records(
        self, state: KeyState, key: Key, records: Sequence[tuple[Any, int]], times: Times, effects: Effects
    ) -> None:
        call = Call(state, key, times, effects)
        groups: dict[Window, dict[int, _Rows]] = {}
        for value, timestamp in records:
            try:
                prepared = self._aggregation.prepare(value)
                base = self._window.base(timestamp)
            except RecordError as ex:
                effects.rejected.append(rejected(key, value, timestamp, ex))
                continue
            if prepared is FILTERED:
                continue
            if is_final(base.end, times.watermark, self._lateness_us):
                effects.late.append(LateRecord(key, value, timestamp, too_late("period")))
                continue
            end = self._window.step(base, max(timestamp, times.watermark - self._lateness_us))
            groups.setdefault(base, {}).setdefault(end, []).append((prepared, timestamp))
        for base, slices in groups.items():
            self._take(base, slices, call)

    def on_groups(self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects) -> None:
        """The column path: a bundle's records of one key, already aggregated by step. The window of a group is the
        first of those that have its records, and none of them is complete (the caller has left out late records)."""
        call = Call(state, key, times, effects)
        by_base: dict[Window, list[Group]] = {}
        for group in groups:
            by_base.setdefault(self._window.base(group.window.start), []).append(group)
        for base, mine in by_base.items():
            first = min(group.window.end for group in mine)
            own = self._period(state.get(base), base, first, times.watermark)
            self._advance(base, own, call)
            self._add_groups(own, mine)
            own.first = min(own.first, first)
            self._store(base, own, call)

    def _add_groups(self, own: Period, groups: Sequence[Group]) -> None:
        """Add groups to their slices: there may be hundreds of both."""
        slices = {piece[0]: piece for piece in own.slices}
        for group in groups:
            end = group.window.end
            piece = slices.get(end)
            if piece is None:
                piece = slices[end] = [end, self._aggregation.create()]
            piece[1] = self._aggregation.merge(piece[1], group.acc)
        if len(slices) > len(own.slices):
            own.slices = sorted(slices.values(), key=itemgetter(0))

    def _take(self, base: Window, slices: dict[int, _Rows], call: Call) -> None:
        """Add records, by the end of their slice; correct windows that fired without them."""
        watermark = call.times.watermark
        own = self._period(call.state.get(base), base, min(slices), watermark)
        self._advance(base, own, call)
        late = {end: rows for end, rows in slices.items() if is_complete(end, watermark)}
        ends = self._corrected(base, own, min(late), watermark) if late else []
        before = [self._until(own, end) if end in own.emitted else None for end in ends]
        for end, rows in slices.items():
            piece = self._slice(own, end)
            piece[1] = self._sum(rows, piece[1])
        own.first = min(own.first, *slices)
        for end, old in zip(ends, before, strict=True):
            new = [row for slice_end, rows in late.items() if slice_end <= end for row in rows]
            self._correct(base, end, own, old, new, call)
        self._store(base, own, call)

    def _slice(self, own: Period, end: int) -> list[Any]:
        """The slice that ends there."""
        index = bisect_left(own.slices, end, key=lambda piece: piece[0])
        if index == len(own.slices) or own.slices[index][0] != end:
            own.slices = [*own.slices[:index], [end, self._aggregation.create()], *own.slices[index:]]
        return own.slices[index]

    def _sum(self, rows: _Rows, acc: Any) -> Any:
        return self._aggregation.add_many(acc, [row[0] for row in rows], [row[1] for row in rows])

    def _until(self, own: Period, end: int) -> Any:
        """A new accumulator of everything up to the end of a window."""
        acc = self._aggregation.merge(self._aggregation.create(), own.acc)
        for piece_end, piece in own.slices:
            if piece_end <= end:
                acc = self._aggregation.merge(acc, piece)
        return acc

    # --- time ---------------------------------------------------------------------------------------------

    def on_timer(
        self, state: KeyState, key: Key, tag: str, domain: Domain, at: int, times: Times, effects: Effects
    ) -> None:
        base = window_of(tag)
        stored = state.get(base) if base is not None else None
        if base is None or stored is None:
            return
        call = Call(state, key, Times(max(times.watermark, at + 1), times.now_us), effects)
        own = self._period(stored, base, 0, 0)
        own.timer_at_us = None
        self._advance(base, own, call, times.most)
        self._store(base, own, call)

    def due_with(self, at: int, watermark: int) -> int:
        """How many windows are due with a timer that was set for ``at``, at most."""
        window = self._window
        return min(max(watermark - at, 0), window.size) // window.every + 1

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        found = set()
        for slot in slots:
            if isinstance(slot, tuple):
                base = Window(*slot)
                own = self._period(state.get(slot), base, 0, 0)
                ends = {*self._ahead(base, own, MAX_TIME), *own.emitted}
                found |= {Window(base.start, end) for end in ends}
        return sorted(found, key=lambda window: (window.end, window.start))

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return []

    def _advance(self, base: Window, own: Period, call: Call, most: int = MANY) -> None:
        """Fire the windows whose end the watermark has passed since the last call, the first ``most`` of them."""
        watermark = call.times.watermark
        ends = list(islice(self._ahead(base, own, watermark), most))
        if ends:
            due = bisect_right(own.slices, ends[-1], key=itemgetter(0))
            # What is final is never needed apart again, so it may grow in place.
            start = own.acc if not self._lateness_us else self._aggregation.merge(self._aggregation.create(), own.acc)
            before = deepcopy(self._aggregation.result(start))  # it may be the accumulator itself, which grows
            whole, after = self._aggregation.running(start, [acc for _, acc in own.slices[:due]])
            for end in ends:
                behind = bisect_right(own.slices, end, hi=due, key=itemgetter(0))
                self._emit(base, end, own, after[behind - 1] if behind else before, Timing.ON_TIME, call)
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

    # --- emitting -----------------------------------------------------------------------------------------

    def _correct(self, base: Window, end: int, own: Period, old: Any, new: _Rows, call: Call) -> None:
        if self._accumulation is Accumulation.DISCARDING:
            acc = self._sum(new, self._aggregation.create())
        else:
            acc = self._until(own, end)
        if self._accumulation is Accumulation.RETRACTING and old is not None:
            count, on_time = own.emitted[end]
            timing = Timing.ON_TIME if count == 1 and on_time else Timing.LATE
            emitted = self._aggregation.result(old)
            call.effects.panes.append(self._pane(base, end, emitted, timing, count - 1, call.key, retraction=True))
        self._emit(base, end, own, self._aggregation.result(acc), Timing.LATE, call)

    def _emit(self, base: Window, end: int, own: Period, result: Any, timing: Timing, call: Call) -> None:
        count, on_time = own.emitted.get(end, (0, timing is Timing.ON_TIME))
        last = is_final(end, call.times.watermark, self._lateness_us)
        call.effects.panes.append(self._pane(base, end, result, timing, count, call.key, last=last))
        if not last:
            own.emitted = {**own.emitted, end: [count + 1, on_time]}

    def _pane(
        self,
        base: Window,
        end: int,
        result: Any,
        timing: Timing,
        index: int,
        key: Key,
        last: bool = False,
        retraction: bool = False,
    ) -> Pane:
        return Pane(
            key=key,
            window=Window(base.start, end),
            result=result,
            timestamp=end - 1,
            timing=timing,
            index=index,
            nonspeculative_index=index,
            is_first=index == 0,
            is_last=last,
            retraction=retraction,
        )

    # --- state --------------------------------------------------------------------------------------------

    def _period(self, stored: Any, base: Window, first: int, watermark: int) -> Period:
        if stored is None:
            done = max(base.start, min(watermark, base.end))
            return Period(self._aggregation.create(), first, done)
        return stored if type(stored) is Period else Period(*stored)

    def _fold(self, own: Period, watermark: int) -> None:
        """Slices of final windows are merged into one."""
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
                end: emitted for end, emitted in own.emitted.items() if not is_final(end, watermark, self._lateness_us)
            }

    def _store(self, base: Window, own: Period, call: Call) -> None:
        watermark = call.times.watermark
        self._fold(own, watermark)
        if own.done >= base.end and is_final(base.end, watermark, self._lateness_us):
            if own.timer_at_us is not None:
                call.effects.timers.append(TimerEffect(call.key, tag_of(base), Domain.EVENT, None))
            if call.state.get(base) is not None:
                del call.state[base]
            return
        end = next(self._ahead(base, own, MAX_TIME), None)
        at = min(base.end - 1 + self._lateness_us, MAX_TIME - 1) if end is None else end - 1
        if own.timer_at_us is None or own.timer_at_us > at:
            own.timer_at_us = at
            call.effects.timers.append(TimerEffect(call.key, tag_of(base), Domain.EVENT, at))
        call.state[base] = own
