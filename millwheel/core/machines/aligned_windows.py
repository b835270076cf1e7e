"""The machine of windows that do not merge: tumbling, sliding, cumulative, global, custom.

State is one entry per (key, window), so a bundle touches only the windows its records are in, and a
key needs no index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call, Gone, Group, Taken
from millwheel.core.windows.contract import Effects, KeyState, Slot, Times, Windowing
from millwheel.core.windows.lateness import too_late
from millwheel.core.windows.panes import Retraction
from millwheel.core.windows.state import CLOSED, WindowState, as_state, window_of
from millwheel.core.windows.windows import Tumbling, Window
from millwheel.errors import RecordError


class AlignedMachine(TriggeredMachine):
    """Windows that do not depend on other records."""

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        call = Call(state, key, times, effects)
        groups: dict[Window, Taken] = {}
        for index, (value, timestamp) in enumerate(records):
            self._sort_in(call, index, value, timestamp, groups)
        for window, taken in groups.items():
            own = as_state(state.get(window)) or self._born(window, times.watermark)
            self._take(own, window, taken, call)
            self._settle(window, own, window, call)
        self._refire(call)

    def _sort_in(
        self, call: Call, index: int, value: Any, timestamp: int, groups: dict[Window, Taken]
    ) -> None:
        """Add a record to the others of its windows."""
        value, back = self._split(value)
        usable = self._prepare(call, value, timestamp)
        if usable is None:
            return
        prepared, windows = usable
        in_time = False
        for window in windows:
            taken = groups.get(window)
            if taken is None:
                if not self._open(call, window):
                    continue
                taken = groups[window] = Taken()
            if back:
                taken.gone.append(Gone(prepared, timestamp, value))
            else:
                taken.rows.append((index, timestamp, prepared, value))
            in_time = True
        if not in_time:
            self._too_late(
                call,
                Retraction(value) if back else value,
                timestamp,
                windows,
                self._why_late(call, windows),
            )

    def _open(self, call: Call, window: Window) -> bool:
        if self.expired(window, call.times.watermark):
            return False
        own = as_state(call.state.get(window)) if not self._plain else None
        return own is None or not own.flags & CLOSED

    def _why_late(self, call: Call, windows: Sequence[Window]) -> str:
        if all(self.expired(window, call.times.watermark) for window in windows):
            return too_late()
        return "the trigger of its window has finished"

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """The column path: a bundle's records of one key, already aggregated per window, at most
        one group each.

        The caller has left out late records: those of windows that are :meth:`expired`, or in
        :meth:`closed_windows`. Not for triggers that weigh records (``needs_bytes``), nor for input
        with retractions.
        """
        call = Call(state, key, times, effects)
        for group in groups:
            own = as_state(state.get(group.window)) or self._born(group.window, times.watermark)
            self._take_group(own, group, call)
            self._settle(group.window, own, group.window, call)

    def on_fired(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """Take over windows that have fired elsewhere, once, as the watermark passed their ends.
        Windows that are here already have been changed by late records since."""
        aside, call = Call(state, key, times, Effects()), Call(state, key, times, effects)
        for group in groups:
            if state.get(group.window) is not None:
                continue
            own = WindowState(
                self.aggregation.create(), 0 if self._plain else self._trigger.start()
            )
            self._take_group(own, group, aside)
            self._fire(own, group.window, aside, False)
            self._requests.renew(group.window, own, group.window, call)
            state[group.window] = own

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
        window = window_of(tag)
        own = as_state(state.get(window)) if window is not None else None
        if window is None or own is None:
            return
        call = Call(state, key, self._requests.clocks_of(own, tag, domain, at, times), effects)
        self._settle(window, own, window, call)

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return self._windows(state, slots, 0)

    def open_results(self, state: KeyState, slots: Sequence[Slot]) -> list[tuple[Window, Any]]:
        """The windows of a key that still take records, ordered by end, each with its present
        result."""
        states = [
            (window, as_state(state.get(tuple(window))))
            for window in self.open_windows(state, slots)
        ]
        return [
            (window, self.aggregation.result(own.acc)) for window, own in states if own is not None
        ]

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return self._windows(state, slots, CLOSED)

    def _windows(self, state: KeyState, slots: Sequence[Slot], closed: int) -> list[Window]:
        windows = []
        for slot in slots:
            own = as_state(state.get(slot))
            if isinstance(slot, tuple) and own is not None and own.flags & CLOSED == closed:
                windows.append(Window(*slot))
        return sorted(windows, key=lambda window: (window.end, window.start))


class SilencesMachine(AlignedMachine):
    """Tumbling windows of keys that fall silent.

    A window with records opens the next one of its key when it fires. If no record comes into that
    one, it fires empty. A window without records opens none, so a silent key emits one such result,
    and then costs nothing.
    """

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Tumbling) -> None:
        super().__init__(windowing, aggregation)
        self._tumbling = window

    def _fire(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        records = own.count
        super()._fire(own, window, call, last)
        if records and window.end < MAX_TIME:
            self._await(window.end, call)

    def _await(self, start: int, call: Call) -> None:
        """Open the window that begins at ``start``, unless it has records already. Where the
        watermark has passed its end, too, it fires at once."""
        try:
            following = self._tumbling.window(start)
        except RecordError:  # its time zone has no more years
            return
        if call.state.get(following) is None:
            self._settle(following, WindowState(self.aggregation.create()), following, call)
