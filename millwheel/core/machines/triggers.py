"""The common part of all windows with triggers: how a window takes records, fires, and ends.

The life of a window: it is born with its first record; fires as its trigger decides; when the
watermark has passed its end, it has its on-time pane; when it has passed the end plus the allowed
lateness, the last pane is emitted and the state is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import (
    FILTERED,
    Aggregation,
    Buffered,
    Growing,
    Prepared,
)
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Call, Gone, Group, Taken
from millwheel.core.windows.contract import (
    LatePolicy,
    LateRecord,
    RejectedRecord,
    Slot,
    Windowing,
    rejected,
)
from millwheel.core.windows.lateness import is_behind, is_complete, is_final
from millwheel.core.windows.panes import (
    Accumulation,
    OutputTime,
    Pane,
    Retraction,
    Timing,
    as_retraction,
    pane_of,
    remember_pane,
    retract_pane,
)
from millwheel.core.windows.requests import Requests
from millwheel.core.windows.state import CLOSED, PAST_ON_TIME, WindowState
from millwheel.core.windows.triggers import Default
from millwheel.core.windows.windows import Forever, Global, OfInput, Window
from millwheel.errors import RecordError

_encode = msgspec.msgpack.Encoder().encode


class TriggeredMachine:
    """The part of a machine that concerns one window at a time."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation) -> None:
        self.windowing = windowing
        self.aggregation = aggregation
        self._trigger = windowing.trigger
        self._plain = isinstance(windowing.trigger, Default)
        self._requests = Requests(windowing)
        self._sized = windowing.trigger.needs_bytes
        self._undoes = windowing.takes_retractions
        self._keeps = windowing.takes_retractions and not aggregation.subtracts
        self._buffers = isinstance(aggregation, Buffered)
        self._grows = isinstance(aggregation, Growing)
        window = windowing.window
        self._is_whole = isinstance(window, Forever | Global)
        stated_in = window.window_of if isinstance(window, OfInput) else None
        self._stated_in = windowing.stated_in or stated_in

    # --- records ----------------------------------------------------------------------------------

    def expired(self, window: Window, watermark: int) -> bool:
        """True when the window's state is, or will be at once, collected."""
        return is_final(window.end, watermark, self.windowing.allowed_lateness)

    def _prepare(
        self, call: Call, value: Any, timestamp: int
    ) -> tuple[Prepared, Sequence[Window]] | None:
        """The prepared value of a record, and its windows; None for a record that is filtered or
        rejected."""
        try:
            prepared = self.aggregation.prepare(value)
            if prepared is FILTERED:
                return None
            if self._stated_in is not None:
                return prepared, (self._stated_in(value),)
            return prepared, self.windowing.window.assign(timestamp)
        except RecordError as ex:
            call.effects.rejected.append(rejected(call.key, value, timestamp, ex))
            return None

    def _split(self, value: Any) -> tuple[Any, bool]:
        """The value of a record, and whether it is a retraction."""
        back = as_retraction(value) if self._undoes else None
        return (value, False) if back is None else (back.value, True)

    def _too_late(
        self, call: Call, value: Any, timestamp: int, windows: Iterable[Window], reason: str
    ) -> None:
        """A record that no window takes."""
        if self.windowing.late is LatePolicy.DROP or type(value) is Retraction:
            call.effects.late.append(LateRecord(call.key, value, timestamp, reason))
            return
        prepared = self.aggregation.prepare(value)
        for window in windows:
            call.refires.setdefault(window, Taken()).rows.append((0, timestamp, prepared, value))

    def _refire(self, call: Call) -> None:
        """Emit the records of windows that are gone: one pane for each window, of these records
        alone."""
        for window, taken in call.refires.items():
            acc = self.aggregation.add_many(
                self.aggregation.create(), taken.prepared, taken.timestamps
            )
            own = WindowState(acc, flags=PAST_ON_TIME)
            call.effects.panes.append(self._pane(own, window, call.key, Timing.LATE, False))

    def _born(self, window: Window, watermark: int) -> WindowState:
        flags = PAST_ON_TIME if is_complete(window.end, watermark) else 0
        return WindowState(
            self.aggregation.create(), 0 if self._plain else self._trigger.start(), flags
        )

    def _take(self, own: WindowState, window: Window, taken: Taken, call: Call) -> None:
        """Add records to a window; nothing is emitted yet."""
        count = len(taken.rows)
        if count:
            self._add(own, taken)
            own.fresh += count
            own.count += count
        if taken.gone:
            count += self._take_out(own, taken.gone, call)
        if self.windowing.output_time is not OutputTime.END_OF_WINDOW:
            times = [*taken.timestamps, *(gone.timestamp for gone in taken.gone)]
            own.output_at_us = self._output_at(own.output_at_us, times, call.times.watermark)
        if not self._plain:
            size = sum(len(_encode(value)) for *_, value in taken.rows) if self._sized else 0
            own.trigger = self._trigger.add(own.trigger, count, size, call.moment(window))

    def _add(self, own: WindowState, taken: Taken) -> None:
        own.acc = self.aggregation.add_many(own.acc, taken.prepared, taken.timestamps)
        if self._keeps:
            own.kept.extend([timestamp, value] for _, timestamp, _, value in taken.rows)

    def _take_group(self, own: WindowState, group: Group, call: Call) -> None:
        """Add records that were aggregated elsewhere."""
        own.acc = self.aggregation.merge(own.acc, group.acc)
        own.fresh += group.count
        own.count += group.count
        if self.windowing.output_time is not OutputTime.END_OF_WINDOW:
            # Some of its records may be behind the watermark: none that counts is earlier.
            earliest = None if group.earliest is None else max(group.earliest, call.times.watermark)
            own.output_at_us = self._output_at(
                own.output_at_us, [earliest, group.latest], call.times.watermark
            )
        if not self._plain:
            own.trigger = self._trigger.add(own.trigger, group.count, 0, call.moment(group.window))

    def _take_out(self, own: WindowState, gone: Sequence[Gone], call: Call) -> int:
        """Take records back out of a window; returns how many were in it."""
        keeps = self._keeps or self._buffers
        records = [record for record in gone if not keeps or self._drop_kept(own, record, call)]
        if self._keeps:
            own.acc = self._again(own.kept)
        elif not self._buffers:
            for record in records:
                own.acc = self.aggregation.subtract(own.acc, record.prepared, record.timestamp)
        own.count -= len(records)
        own.fresh += len(records)
        return len(records)

    def _drop_kept(self, own: WindowState, gone: Gone, call: Call) -> bool:
        """Drop a record from the kept ones, or from those of the accumulator."""
        at, value = (0, 1) if self._keeps else (1, 0)
        held: list[Any] = own.kept if self._keeps else own.acc
        record = [gone.timestamp, gone.value] if self._keeps else [gone.value, gone.timestamp]
        if record in held:
            held.remove(record)
            return True
        # Rows of tables, joins and top are taken back at the time of the record that replaces them.
        # See mistake rows_are_taken_back_at_their_own_time_alone.
        alike = [each for each in held if each[value] == gone.value] if self._is_whole else []
        if alike:
            held.remove(min(alike, key=itemgetter(at)))
            return True
        self._not_held(gone, call)
        return False

    def _not_held(self, gone: Gone, call: Call) -> None:
        reason = "a retraction of a record that its window does not hold"
        call.effects.rejected.append(
            RejectedRecord(call.key, Retraction(gone.value), gone.timestamp, reason)
        )

    def _again(self, records: Sequence[Sequence[Any]]) -> Any:
        """The accumulator of kept records."""
        prepared = [self.aggregation.prepare(record[1]) for record in records]
        return self.aggregation.add_many(
            self.aggregation.create(), prepared, [record[0] for record in records]
        )

    def _output_at(
        self, current: int | None, timestamps: Iterable[int | None], watermark: int
    ) -> int | None:
        """The output time with more records. Those behind the watermark cannot hold it, so they do
        not count."""
        times = [t for t in timestamps if t is not None and not is_behind(t, watermark)]
        if current is not None:
            times.append(current)
        if not times:
            return None
        return min(times) if self.windowing.output_time is OutputTime.EARLIEST else max(times)

    # --- emitting ---------------------------------------------------------------------------------

    def _settle(self, slot: Slot, own: WindowState, window: Window, call: Call) -> None:
        """After any change: check the trigger once, end the window if it is time, and update timers
        and hold."""
        expired = self.expired(window, call.times.watermark)
        complete = is_complete(window.end, call.times.watermark)
        if not own.flags & CLOSED:
            if complete if self._plain else self._trigger.ready(own.trigger, call.moment(window)):
                self._fire(own, window, call, expired)
            elif expired and own.fresh:
                self._emit(own, window, call, True)
            if complete and not own.fresh:
                own.flags |= PAST_ON_TIME
        if expired:
            self._forget(slot, own, call)
        else:
            self._requests.renew(slot, own, window, call)
            call.state[slot] = own

    def _forget(self, slot: Slot, own: WindowState, call: Call) -> None:
        """Delete a window and all its requests."""
        self._requests.drop(slot, own, call)
        if call.state.get(slot) is not None:
            del call.state[slot]

    def _fire(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        after = own.trigger if self._plain else self._trigger.fire(own.trigger, call.moment(window))
        self._emit(own, window, call, last or after is None)
        own.trigger = after
        if after is None:
            own.flags |= CLOSED
            own.acc, own.emitted, own.kept, own.output_at_us, own.fresh = None, [], [], None, 0

    def _emit(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        """Emit a pane, unless there is nothing new.

        The on-time pane is emitted even then, because it marks the window as complete, unless it
        would only retract a standing pane and repeat it.
        """
        timing = self._timing(own, window, call.times.watermark)
        retracting = self.windowing.accumulation is Accumulation.RETRACTING
        completes = timing is Timing.ON_TIME and self._trigger.on_time and not own.emitted
        if not own.fresh and not completes:
            return
        if retracting:
            self._take_back(own, call)
        if own.count or not retracting:
            pane = self._pane(own, window, call.key, timing, last)
            call.effects.panes.append(pane)
            own.index += 1
            own.nonspeculative += timing is not Timing.EARLY
            if retracting:
                own.emitted = [self._remember(pane)]
        if timing is not Timing.EARLY:
            own.flags |= PAST_ON_TIME
        own.fresh, own.output_at_us = 0, None
        if self.windowing.accumulation is Accumulation.DISCARDING:
            own.acc = self.aggregation.create()

    def _remember(self, pane: Pane) -> list[Any]:
        """The stored form of a pane that stands, to take it back."""
        return remember_pane(
            msgspec.structs.replace(pane, result=len(pane.result)) if self._grows else pane
        )

    def _take_back(self, own: WindowState, call: Call) -> None:
        call.effects.panes.extend(retract_pane(call.key, emitted) for emitted in own.emitted)
        own.emitted = []

    def _timing(self, own: WindowState, window: Window, watermark: int) -> Timing:
        if not is_complete(window.end, watermark):
            return Timing.EARLY
        return Timing.LATE if own.flags & PAST_ON_TIME else Timing.ON_TIME

    def _pane(self, own: WindowState, window: Window, key: Key, timing: Timing, last: bool) -> Pane:
        at = own.output_at_us
        return pane_of(
            key,
            window,
            self.aggregation.result(own.acc),
            timing,
            own.index,
            last,
            nonspeculative=-1 if timing is Timing.EARLY else own.nonspeculative,
            at=None if at is None else min(at, window.end - 1),
        )
