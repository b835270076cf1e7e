"""The machine of windows that do not merge: tumbling, sliding, cumulative, global, custom.

State is one entry per (key, window), so a bundle touches only the windows its records are in. The life of a
window: it is born with its first record; speaks as its trigger says; when the watermark has passed its end, it has
its on-time pane; when it has passed the end plus the allowed lateness, what is still unsaid is said and
the state is deleted. A timer carries it from one to the next.

What all machines with triggers share is in :class:`TriggeredMachine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.core.aggregation import Aggregation, Prepared
from millwheel.core.keys import Key
from millwheel.core.panes import Accumulation, OutputTime, Pane, Retraction, Timing, as_retraction
from millwheel.core.records import Domain
from millwheel.core.times import MAX_TIME
from millwheel.core.triggers import Default, Moment
from millwheel.core.window_state import CLOSED, SPOKEN, WindowState, as_state, remember_pane, retract_pane
from millwheel.core.windowing import (
    Effects,
    HoldEffect,
    KeyState,
    LatePolicy,
    LateRecord,
    RejectedRecord,
    Slot,
    TimerEffect,
    Times,
    Windowing,
)
from millwheel.core.windows import Window
from millwheel.errors import RecordError

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Gone:
    """A record that its producer has taken back."""

    prepared: Prepared
    timestamp: int
    value: Any


class Taken:
    """Records of one bundle that go to the same window, as parallel lists in order of arrival."""

    __slots__ = ("gone", "places", "prepared", "timestamps", "values")

    def __init__(self) -> None:
        self.gone: list[Gone] = []
        self.places: list[int] = []
        self.prepared: list[Prepared] = []
        self.timestamps: list[int] = []
        self.values: list[Any] = []

    def append(self, place: int, prepared: Prepared, timestamp: int, value: Any) -> None:
        """One more record; ``place`` is its number in the bundle."""
        self.places.append(place)
        self.prepared.append(prepared)
        self.timestamps.append(timestamp)
        self.values.append(value)


class Call:
    """One call of a machine: whose state, what the clocks say, and where effects go."""

    __slots__ = ("effects", "key", "refires", "state", "times")

    def __init__(self, state: KeyState, key: Key, times: Times, effects: Effects) -> None:
        self.state = state
        self.key = key
        self.times = times
        self.effects = effects
        self.refires: dict[Window, Taken] = {}

    def moment(self, window: Window) -> Moment:
        """The call as a trigger of this window sees it."""
        return Moment(window, self.times.watermark, self.times.now, self.times.percentiles)


class TriggeredMachine:
    """How one window takes records, speaks, asks for timers and ends."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation) -> None:
        self.windowing = windowing
        self.aggregation = aggregation
        self._trigger = windowing.trigger
        self._plain = isinstance(windowing.trigger, Default)
        self._shares = windowing.trigger.shares()
        self._sized = windowing.trigger.needs_bytes
        self._undoes = windowing.takes_retractions
        self._keeps = windowing.takes_retractions and not aggregation.subtracts

    # --- records ------------------------------------------------------------------------------------------

    def expired(self, window: Window, watermark: int) -> bool:
        """True when the window's state is, or will be at once, collected."""
        return watermark > self._collect_at(window)

    def _collect_at(self, window: Window) -> int:
        return min(window.end - 1 + self.windowing.allowed_lateness, MAX_TIME - 1)

    def _prepare(self, call: Call, value: Any, timestamp: int) -> Prepared | None:
        """What the aggregation needs of a record; a record it cannot use is rejected."""
        try:
            return self.aggregation.prepare(value)
        except RecordError as ex:
            call.effects.rejected.append(RejectedRecord(call.key, value, timestamp, str(ex)))
            return None

    def _split(self, value: Any) -> tuple[Any, bool]:
        """What a record is about, and whether it takes that back."""
        back = as_retraction(value) if self._undoes else None
        return (value, False) if back is None else (back.value, True)

    def _too_late(self, call: Call, value: Any, timestamp: int, windows: Iterable[Window], reason: str) -> None:
        """A record that no window takes."""
        if self.windowing.late is LatePolicy.DROP or type(value) is Retraction:
            call.effects.late.append(LateRecord(call.key, value, timestamp, reason))
            return
        prepared = self.aggregation.prepare(value)
        for window in windows:
            call.refires.setdefault(window, Taken()).append(0, prepared, timestamp, value)

    def _refire(self, call: Call) -> None:
        """Say the records whose windows are gone, each window's alone."""
        for window, taken in call.refires.items():
            acc = self.aggregation.add_many(self.aggregation.create(), taken.prepared, taken.timestamps)
            own = WindowState(acc, flags=SPOKEN)
            call.effects.panes.append(self._pane(own, window, call.key, Timing.LATE, False))

    def _born(self, window: Window, watermark: int) -> WindowState:
        flags = SPOKEN if watermark >= window.end else 0
        return WindowState(self.aggregation.create(), 0 if self._plain else self._trigger.start(), flags)

    def _take(self, own: WindowState, window: Window, taken: Taken, call: Call) -> None:
        """Add records to a window; nothing is said yet."""
        count = len(taken.prepared)
        if count:
            own.acc = self.aggregation.add_many(own.acc, taken.prepared, taken.timestamps)
            own.fresh += count
            own.count += count
            if self._keeps:
                own.kept = [*own.kept, *([t, v] for t, v in zip(taken.timestamps, taken.values, strict=True))]
        if taken.gone:
            count += self._take_out(own, taken.gone, call)
        if self.windowing.output_time is not OutputTime.END_OF_WINDOW:
            times = [*taken.timestamps, *(gone.timestamp for gone in taken.gone)]
            own.output_at = self._output_at(own.output_at, times, call.times.watermark)
        if not self._plain:
            size = sum(len(_encode(value)) for value in taken.values) if self._sized else 0
            own.trigger = self._trigger.add(own.trigger, count, size, call.moment(window))

    def _take_out(self, own: WindowState, gone: Sequence[Gone], call: Call) -> int:
        """Take records back out of a window; how many there were."""
        found = [record for record in gone if not self._keeps or self._drop_kept(own, record, call)]
        if self._keeps:
            own.acc = self._again(own.kept)
        else:
            for record in found:
                own.acc = self.aggregation.subtract(own.acc, record.prepared, record.timestamp)
        own.count -= len(found)
        own.fresh += len(found)
        return len(found)

    def _drop_kept(self, own: WindowState, gone: Gone, call: Call) -> bool:
        if [gone.timestamp, gone.value] in own.kept:
            own.kept.remove([gone.timestamp, gone.value])
            return True
        self._not_held(gone, call)
        return False

    def _not_held(self, gone: Gone, call: Call) -> None:
        reason = "a retraction of a record that its window does not hold"
        call.effects.rejected.append(RejectedRecord(call.key, Retraction(gone.value), gone.timestamp, reason))

    def _again(self, kept: Sequence[Sequence[Any]]) -> Any:
        """The accumulator of kept records."""
        prepared = [self.aggregation.prepare(value) for _, value in kept]
        return self.aggregation.add_many(self.aggregation.create(), prepared, [timestamp for timestamp, _ in kept])

    def _output_at(self, known: int | None, timestamps: Iterable[int | None], watermark: int) -> int | None:
        """The output time with more records. Those behind the watermark cannot hold it, so they do not count."""
        times = [t for t in timestamps if t is not None and t >= watermark]
        if known is not None:
            times.append(known)
        if not times:
            return None
        return min(times) if self.windowing.output_time is OutputTime.EARLIEST else max(times)

    # --- speaking -----------------------------------------------------------------------------------------

    def _settle(self, slot: Slot, own: WindowState, window: Window, call: Call) -> None:
        """After any change: ask the trigger once, end the window if it is time, and see to timers and hold."""
        moment = call.moment(window)
        expired = self.expired(window, call.times.watermark)
        if not own.flags & CLOSED:
            if self._trigger.ready(own.trigger, moment):
                self._fire(own, window, call, expired)
            elif expired and own.fresh:
                self._speak(own, window, call, True)
            if moment.complete and not own.fresh:
                own.flags |= SPOKEN
        if expired:
            self._forget(slot, own, call)
        else:
            self._ask(slot, own, window, call)
            call.state[slot] = own

    def _fire(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        after = own.trigger if self._plain else self._trigger.fire(own.trigger, call.moment(window))
        self._speak(own, window, call, last or after is None)
        own.trigger = after
        if after is None:
            own.flags |= CLOSED
            own.acc, own.said, own.kept, own.output_at, own.fresh = None, [], [], None, 0

    def _speak(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        """Say a pane, unless there is nothing new to say.

        The on-time pane is said even then, because it tells that the window is complete; but not to take back a
        standing pane only to repeat it.
        """
        timing = self._timing(own, window, call.times.watermark)
        retracting = self.windowing.accumulation is Accumulation.RETRACTING
        completes = timing is Timing.ON_TIME and self._trigger.on_time and not own.said
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
                own.said = [remember_pane(pane)]
        if timing is not Timing.EARLY:
            own.flags |= SPOKEN
        own.fresh, own.output_at = 0, None
        if self.windowing.accumulation is Accumulation.DISCARDING:
            own.acc = self.aggregation.create()

    def _take_back(self, own: WindowState, call: Call) -> None:
        call.effects.panes.extend(retract_pane(call.key, said) for said in own.said)
        own.said = []

    def _timing(self, own: WindowState, window: Window, watermark: int) -> Timing:
        if watermark < window.end:
            return Timing.EARLY
        return Timing.LATE if own.flags & SPOKEN else Timing.ON_TIME

    def _pane(self, own: WindowState, window: Window, key: Key, timing: Timing, last: bool) -> Pane:
        at = own.output_at
        return Pane(
            key=key,
            window=window,
            result=self.aggregation.result(own.acc),
            timestamp=window.end - 1 if at is None else min(at, window.end - 1),
            timing=timing,
            index=own.index,
            nonspeculative_index=-1 if timing is Timing.EARLY else own.nonspeculative,
            is_first=own.index == 0,
            is_last=last,
        )

    # --- timers and holds ---------------------------------------------------------------------------------

    def _ask(self, slot: Slot, own: WindowState, window: Window, call: Call) -> None:
        """Ask the runtime for what the window needs from here on, if that differs from what it has."""
        complete = call.times.watermark >= window.end
        at = self._collect_at(window) if complete else window.end - 1
        if own.timer_at is None or own.timer_at > at:
            own.timer_at = at
            call.effects.timers.append(TimerEffect(call.key, tag_of(slot), Domain.EVENT, at))
            if not complete:
                self._ask_shares(slot, at, call)
        if not self._plain:
            self._ask_clock(slot, own, call)
        self._ask_hold(slot, own, self._hold(own, window, complete), call)

    def _ask_shares(self, slot: Slot, at: int | None, call: Call) -> None:
        for share in self._shares:
            call.effects.timers.append(TimerEffect(call.key, f"{tag_of(slot)}%{share}", Domain.EVENT, at, share))

    def _ask_clock(self, slot: Slot, own: WindowState, call: Call) -> None:
        wake = MAX_TIME if own.trigger is None else self._trigger.wake(own.trigger, call.times.now)
        at = None if wake == MAX_TIME else wake - 1
        if at != own.clock_at:
            own.clock_at = at
            call.effects.timers.append(TimerEffect(call.key, tag_of(slot), Domain.PROCESSING, at))

    def _hold(self, own: WindowState, window: Window, complete: bool) -> int | None:
        """What is not said yet must not come behind the output watermark. Until the end its timer sees to that."""
        if not own.fresh:
            return None
        if own.output_at is not None:
            return min(own.output_at, window.end - 1)
        return window.end - 1 if complete and not own.flags & SPOKEN else None

    def _ask_hold(self, slot: Slot, own: WindowState, at: int | None, call: Call) -> None:
        if at != own.held_at:
            own.held_at = at
            call.effects.holds.append(HoldEffect(call.key, tag_of(slot), at))

    def _forget(self, slot: Slot, own: WindowState, call: Call) -> None:
        """Delete a window and whatever was asked for it."""
        for at, domain in ((own.timer_at, Domain.EVENT), (own.clock_at, Domain.PROCESSING)):
            if at is not None:
                call.effects.timers.append(TimerEffect(call.key, tag_of(slot), domain, None))
        self._ask_shares(slot, None, call)
        self._ask_hold(slot, own, None, call)
        if call.state.get(slot) is not None:
            del call.state[slot]

    def _rung(self, own: WindowState, tag: str, domain: Domain, at: int, times: Times) -> Times:
        """The clocks of a timer call: whoever fires a timer vouches that its time has passed."""
        if "%" in tag:
            return times
        if domain is Domain.EVENT:
            own.timer_at = None if own.timer_at is not None and own.timer_at <= at else own.timer_at
            return Times(max(times.watermark, at + 1), times.now, times.percentiles)
        own.clock_at = None
        return Times(times.watermark, max(times.now, at + 1), times.percentiles)


class AlignedMachine(TriggeredMachine):
    """Windows that do not depend on other records."""

    def on_records(
        self, state: KeyState, key: Key, records: Sequence[tuple[Any, int]], times: Times, effects: Effects
    ) -> None:
        call = Call(state, key, times, effects)
        groups: dict[Window, Taken] = {}
        for place, (value, timestamp) in enumerate(records):
            self._sort_in(call, place, value, timestamp, groups)
        for window, taken in groups.items():
            own = as_state(state.get(window)) or self._born(window, times.watermark)
            self._take(own, window, taken, call)
            self._settle(window, own, window, call)
        self._refire(call)

    def _sort_in(self, call: Call, place: int, value: Any, timestamp: int, groups: dict[Window, Taken]) -> None:
        """Put a record with the others of its windows."""
        value, back = self._split(value)
        prepared = self._prepare(call, value, timestamp)
        if prepared is None:
            return
        windows = self.windowing.window.assign(timestamp)
        found = False
        for window in windows:
            taken = groups.get(window)
            if taken is None:
                if not self._open(call, window):
                    continue
                taken = groups[window] = Taken()
            if back:
                taken.gone.append(Gone(prepared, timestamp, value))
            else:
                taken.append(place, prepared, timestamp, value)
            found = True
        if not found:
            self._too_late(call, Retraction(value) if back else value, timestamp, windows, self._why_late(call, windows))

    def _open(self, call: Call, window: Window) -> bool:
        if self.expired(window, call.times.watermark):
            return False
        own = as_state(call.state.get(window)) if not self._plain else None
        return own is None or not own.flags & CLOSED

    def _why_late(self, call: Call, windows: Sequence[Window]) -> str:
        if all(self.expired(window, call.times.watermark) for window in windows):
            return "the watermark has passed the end of its window and the allowed lateness"
        return "the trigger of its window has finished"

    def on_timer(
        self, state: KeyState, key: Key, tag: str, domain: Domain, at: int, times: Times, effects: Effects
    ) -> None:
        window = window_of(tag)
        own = as_state(state.get(window)) if window is not None else None
        if window is None or own is None:
            return
        call = Call(state, key, self._rung(own, tag, domain, at, times), effects)
        self._settle(window, own, window, call)

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        found = []
        for slot in slots:
            own = as_state(state.get(slot))
            if isinstance(slot, tuple) and own is not None and not own.flags & CLOSED:
                found.append(Window(*slot))
        return sorted(found, key=lambda window: (window.end, window.start))


def tag_of(slot: Slot) -> str:
    """The timer tag of a window: ``start,end``, or the number of a session."""
    return f"{slot[0]},{slot[1]}" if isinstance(slot, tuple) else str(slot)


def window_of(tag: str) -> Window | None:
    """The window that :func:`tag_of` named (a percentile may follow it), None for other tags."""
    start, comma, end = tag.partition("%")[0].partition(",")
    try:
        return Window(int(start), int(end)) if comma else None
    except ValueError:
        return None
