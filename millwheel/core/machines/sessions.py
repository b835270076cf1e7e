"""The machine of windows that merge: sessions, and custom windows with a merge of their own.

A key has one index, ``"open"``, and one state entry per open window under a number that stays while
the window grows: so a record that lengthens a session rewrites two small entries and sets no timer.
The timer that was set for the first end then fires too early, and is set again.

A record is judged by the window it would have alone: if that is gone the record is late, even if an
open window lies nearby. Closed windows (their trigger has finished) do not merge; records inside of
them are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from millwheel.core.aggregates.aggregation import Aggregation, Growing
from millwheel.core.aggregates.arrival_order import InOrder
from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.windows.calls import Call, Gone, Group, Taken
from millwheel.core.windows.contract import Effects, KeyState, Slot, Times, Windowing
from millwheel.core.windows.lateness import is_complete, too_late
from millwheel.core.windows.panes import OutputTime, Retraction
from millwheel.core.windows.state import CLOSED, PAST_ON_TIME, WindowState, as_state, without_share
from millwheel.core.windows.windows import Sessions, Window
from millwheel.errors import invariant

INDEX = "open"

Entry = list[Any]
"""[start, end, number, closed] of one window of the key."""


class Merging(Protocol):
    """A window function whose windows merge."""

    def assign(self, timestamp: int) -> Sequence[Window]: ...

    def merge(self, windows: Sequence[Window]) -> Sequence[Sequence[Window]]: ...


class Index:
    """The windows of one key: ``[next number, [entry, ...], records so far]`` as stored. Records
    are numbered in the order of their arrival, as long as there is a window."""

    def __init__(self, state: KeyState) -> None:
        self._state = state
        stored = state.get(INDEX)
        self.next: int = stored[0] if stored else 1
        self.entries: list[Entry] = stored[1] if stored else []
        self.arrived: int = stored[2] if stored and len(stored) > 2 else 0

    def add(self, window: Window) -> Entry:
        """A new window with a number of its own."""
        entry: Entry = [window.start, window.end, self.next, False]
        self.next += 1
        self.entries.append(entry)
        return entry

    def find(self, number: int) -> Entry | None:
        """The entry of a number."""
        return next((entry for entry in self.entries if entry[2] == number), None)

    def save(self) -> None:
        """Write it back; an index without windows disappears."""
        if self.entries:
            self._state[INDEX] = [self.next, self.entries, self.arrived]
        elif self._state.get(INDEX) is not None:
            del self._state[INDEX]


class MergingMachine(TriggeredMachine):
    """Windows of one key that become one when records join them."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, function: Merging) -> None:
        self._in_order = (
            None if windowing.takes_retractions or not aggregation.ordered else InOrder(aggregation)
        )
        super().__init__(windowing, self._in_order or aggregation)
        self._function = function
        # The records of a session are found again by its bounds and their number.
        self._grows = isinstance(aggregation, Growing) and isinstance(function, Sessions)

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        call = Call(state, key, times, effects)
        index = Index(state)
        groups: dict[Window, Taken] = {}
        gone: list[Gone] = []
        for value, timestamp in records:
            self._sort_in(call, index, value, timestamp, groups, gone)
        self._refire(call)
        if not groups and not gone:
            return
        changed = self._join(call, index, groups)
        for entry, parts in changed:
            own = self._stored(call, entry)
            self._take(own, window_at(entry), _together([groups[window] for window in parts]), call)
            call.state[entry[2]] = own
        entries = [entry for entry, _ in changed]
        for entry in self._unmerge(call, index, gone):
            if not any(entry is other for other in entries):
                entries.append(entry)
        for entry in entries:
            if any(entry is other for other in index.entries):
                self._settle_entry(index, entry, self._stored(call, entry), call)
        index.save()

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """The column path: a bundle's records of one key, already aggregated by the windows that
        they form among themselves.

        The caller has removed records whose own window is :meth:`expired`. Only for windows that
        fire once, as the watermark passes their end: the content of an early pane would depend on
        the bundling.
        """
        call = Call(state, key, times, effects)
        index = Index(state)
        index.arrived += sum(group.count for group in groups)
        brought = {group.window: group for group in groups}
        for entry, parts in self._join(call, index, brought):
            own = self._stored(call, entry)
            for window in parts:
                self._take_group(own, brought[window], call)
            call.state[entry[2]] = own
            self._settle_entry(index, entry, own, call)
        index.save()

    def _unmerge(self, call: Call, index: Index, gone: Sequence[Gone]) -> list[Entry]:
        """Take records back out; returns the windows that changed. Only for input with
        retractions."""
        return []

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
        number = without_share(tag)
        index = Index(state)
        entry = index.find(int(number)) if number.isdigit() else None
        own = self._state_of(state.get(entry[2])) if entry is not None else None
        if entry is None or own is None:
            return
        call = Call(state, key, self._requests.clocks_of(own, tag, domain, at, times), effects)
        self._settle_entry(index, entry, own, call)
        index.save()

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return self._windows(state, False)

    def open_results(self, state: KeyState, slots: Sequence[Slot]) -> list[tuple[Window, Any]]:
        """The windows of a key that still take records, ordered by end, and the result of each at
        the moment."""
        entries = sorted(
            (entry for entry in Index(state).entries if not entry[3]),
            key=lambda entry: entry[1::-1],
        )
        states = [(window_at(entry), self._state_of(state.get(entry[2]))) for entry in entries]
        return [
            (window, self.aggregation.result(own.acc)) for window, own in states if own is not None
        ]

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return self._windows(state, True)

    def _windows(self, state: KeyState, closed: bool) -> list[Window]:
        windows = [window_at(entry) for entry in Index(state).entries if entry[3] is closed]
        return sorted(windows, key=lambda window: (window.end, window.start))

    # --- records to windows -----------------------------------------------------------------------

    def _sort_in(
        self,
        call: Call,
        index: Index,
        value: Any,
        timestamp: int,
        groups: dict[Window, Taken],
        gone: list[Gone],
    ) -> None:
        value, back = self._split(value)
        usable = self._prepare(call, value, timestamp)
        if usable is None:
            return
        prepared, windows = usable
        live = [window for window in windows if not self.expired(window, call.times.watermark)]
        if not live:
            self._too_late(
                call, Retraction(value) if back else value, timestamp, windows, too_late()
            )
        elif any(entry[3] and entry[0] <= timestamp < entry[1] for entry in index.entries):
            reason = "the trigger of its window has finished"
            self._too_late(call, Retraction(value) if back else value, timestamp, windows, reason)
        elif back:
            gone.append(Gone(prepared, timestamp, value))
        else:
            index.arrived += 1
            for window in live:
                groups.setdefault(window, Taken()).rows.append(
                    (index.arrived, timestamp, prepared, value)
                )

    def _join(
        self, call: Call, index: Index, groups: Mapping[Window, Taken | Group]
    ) -> list[tuple[Entry, list[Window]]]:
        """Merge the records' own windows with the open ones; returns each changed window, with the
        records' windows that it takes in."""
        opened = {window_at(entry): entry for entry in index.entries if not entry[3]}
        changed = []
        for members in self._function.merge(sorted({*opened, *groups})):
            new = [window for window in members if window in groups]
            if not new:
                parts = [opened[window] for window in members]
                if len(parts) > 1:
                    self._merge(call, index, parts, span(members))
                continue
            parts = [opened[window] for window in members if window in opened]
            met = len(parts) == 1 and self._meets_another(call, parts[0], members, groups)
            entry = (
                self._merge(call, index, parts, span(members))
                if parts
                else index.add(span(members))
            )
            if met:
                own = self._stored(call, entry)
                own.index = own.nonspeculative = 0
                call.state[entry[2]] = own
            changed.append((entry, new))
        return changed

    def _meets_another(
        self,
        call: Call,
        part: Entry,
        members: Sequence[Window],
        groups: Mapping[Window, Taken | Group],
    ) -> bool:
        """True when the records of this bundle, one by one, would have made a window of their own
        that then merged with the one they go to: the number of its next pane must not depend on how
        records are bundled."""
        if not self._stored(call, part).index:
            return False
        apart = [window_at(part)]
        for window in sorted(
            (w for w in members if w in groups), key=lambda window: _first(groups[window])
        ):
            merged = self._function.merge(sorted({*apart, window}))
            if any(len([other for other in group if other != window]) > 1 for group in merged):
                return True
            apart = [span(group) for group in merged]
        return False

    def _merge(self, call: Call, index: Index, parts: list[Entry], window: Window) -> Entry:
        """Merge several windows into the first of them, which then spans ``window``."""
        entry = parts[0]
        if len(parts) == 1 and (entry[0], entry[1]) == window:
            return entry
        states = [self._stored(call, part) for part in parts]
        own = states[0]
        if not self._plain:
            own.trigger = self._trigger.merge(
                [state.trigger for state in states], call.moment(window)
            )
        own.index, own.nonspeculative = self._panes_so_far(parts, states, window)
        for part, state in zip(parts[1:], states[1:], strict=True):
            self._absorb(own, state)
            self._forget(part[2], state, call)
            index.entries.remove(part)
        if not is_complete(window.end, call.times.watermark):
            own.flags &= ~PAST_ON_TIME
        entry[0], entry[1] = window
        call.state[entry[2]] = own
        return entry

    def _panes_so_far(
        self, parts: list[Entry], states: list[WindowState], window: Window
    ) -> tuple[int, int]:
        """The numbers of the panes so far of a merged window: none, unless it equals one of its
        parts."""
        for part, state in zip(parts, states, strict=True):
            if len(parts) == 1 or window_at(part) == window:
                return state.index, state.nonspeculative
        return 0, 0

    def _absorb(self, own: WindowState, other: WindowState) -> None:
        own.acc = self.aggregation.merge(own.acc, other.acc)
        own.flags |= other.flags & PAST_ON_TIME
        own.fresh += other.fresh
        own.count += other.count
        own.emitted = own.emitted + other.emitted
        own.kept = own.kept + other.kept
        times = [at for at in (own.output_at_us, other.output_at_us) if at is not None]
        earliest = self.windowing.output_time is OutputTime.EARLIEST
        own.output_at_us = None if not times else min(times) if earliest else max(times)

    def _add(self, own: WindowState, taken: Taken) -> None:
        if self._in_order is None:
            super()._add(own, taken)
        else:
            numbers = [row[0] for row in taken.rows]
            own.acc = self._in_order.add_numbered(
                own.acc, numbers, taken.prepared, taken.timestamps
            )

    def _stored(self, call: Call, entry: Entry) -> WindowState:
        state = self._state_of(call.state.get(entry[2]))
        if state is None:
            state = self._born(window_at(entry), call.times.watermark)
            state.in_runs = self._in_order is not None
        return state

    def _state_of(self, stored: Any) -> WindowState | None:
        """A window as it was stored, perhaps by a version that did not keep the order of
        arrival."""
        own = as_state(stored)
        if own is not None and self._in_order is not None and not own.in_runs:
            own.in_runs = True
            own.acc = None if own.flags & CLOSED else self._in_order.of_old(own.acc)
        return own

    def _settle_entry(self, index: Index, entry: Entry, own: WindowState, call: Call) -> None:
        window = window_at(entry)
        self._settle(entry[2], own, window, call)
        entry[3] = bool(own.flags & CLOSED)
        if self.expired(window, call.times.watermark):
            index.entries.remove(entry)


def window_at(entry: Entry) -> Window:
    """The window of an entry."""
    return Window(entry[0], entry[1])


def span(windows: Sequence[Window]) -> Window:
    """From the earliest start to the latest end."""
    return Window(min(window.start for window in windows), max(window.end for window in windows))


def _first(taken: Taken | Group) -> int:
    """The number of the first record."""
    invariant(
        isinstance(taken, Taken),
        "a window that has fired takes groups, whose records have no order",
    )
    assert isinstance(taken, Taken)
    number: int = taken.rows[0][0]
    return number


def _together(parts: Sequence[Taken]) -> Taken:
    if len(parts) == 1:
        return parts[0]
    whole = Taken()
    whole.rows = sorted((row for part in parts for row in part.rows), key=lambda row: row[0])
    return whole
