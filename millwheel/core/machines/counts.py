"""The machine of count windows: every n records of a key in a row, as they arrive.

Each pane is its window's only one, and spans the timestamps of its records. When bounded input
ends, incomplete windows are emitted.

A window may never become full, so it does not hold the watermark while it fills, except with
output_time earliest. Without a hold, the watermark may have passed all of its records when a late
one fills it, or when the input has ended. Its pane then has the time of the watermark, so that it
is not late for its consumers. At the end of the input that is the last instant, in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.model.times import LAST_TIME
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import (
    Effects,
    HoldEffect,
    KeyState,
    Slot,
    TimerEffect,
    Times,
    Windowing,
    rejected,
)
from millwheel.core.windows.lateness import is_behind
from millwheel.core.windows.panes import OutputTime, Pane, pane_of
from millwheel.core.windows.windows import Count, Window
from millwheel.errors import InvariantError, RecordError, invariant

SLOT = "count"


class Filling(msgspec.Struct, array_like=True):
    """The window that is filling. ``output_at_us`` is its earliest record that was not behind the
    watermark, for output_time earliest; ``held_at_us`` is the hold that was last requested."""

    acc: Any
    count: int = 0
    earliest: int = 0
    latest: int = 0
    output_at_us: int | None = None
    held_at_us: int | None = None


class CountMachine:
    """See the head of this file."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Count) -> None:
        self._count = window.count
        self._output_time = windowing.output_time
        self._aggregation = aggregation

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        stored = state.get(SLOT)
        own = self._filling(stored)
        before = own.count
        for value, timestamp in records:
            try:
                prepared = self._aggregation.prepare(value)
            except RecordError as ex:
                effects.rejected.append(rejected(key, value, timestamp, ex))
                continue
            if prepared is not FILTERED:
                own = self._add(own, prepared, timestamp, times, key, effects)
        self._keep(own, bool(before), stored is None, state, key, effects)

    def filled(self, state: KeyState) -> int:
        """The number of records in the window that is filling."""
        return self._filling(state.get(SLOT)).count

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """The column path: a bundle's records of one key, already aggregated by window, in order of
        arrival. The caller has called :meth:`filled`, and lets no group exceed its window. Not for
        ``output_time: earliest``, which looks at each record."""
        stored = state.get(SLOT)
        own = self._filling(stored)
        before = own.count
        for group in groups:
            own.acc = self._aggregation.merge(own.acc, group.acc)
            own.earliest = (
                min(own.earliest, group.window.start) if own.count else group.window.start
            )
            own.latest = (
                max(own.latest, group.window.end - 1) if own.count else group.window.end - 1
            )
            own.count += group.count
            invariant(
                own.count <= self._count, f"a count window of {self._count} got {own.count} records"
            )
            own = self._fire_full(own, times, key, effects)
        self._keep(own, bool(before), stored is None, state, key, effects)

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
        own = self._filling(state.get(SLOT))
        if own.count:
            effects.panes.append(self._pane(own, key, max(times.watermark, at + 1)))
            held = own.held_at_us
            self._store(Filling(self._aggregation.create(), held_at_us=held), state, key, effects)

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        own = self._filling(state.get(SLOT))
        return [Window(own.earliest, own.latest + 1)] if own.count else []

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        return []

    def _filling(self, stored: Any) -> Filling:
        if stored is None:
            return Filling(self._aggregation.create())
        return stored if type(stored) is Filling else Filling(*stored)

    def _add(
        self, own: Filling, prepared: Any, timestamp: int, times: Times, key: Key, effects: Effects
    ) -> Filling:
        own.acc = self._aggregation.add_many(own.acc, [prepared], [timestamp])
        own.earliest = min(own.earliest, timestamp) if own.count else timestamp
        own.latest = max(own.latest, timestamp) if own.count else timestamp
        own.count += 1
        if self._output_time is OutputTime.EARLIEST and not is_behind(timestamp, times.watermark):
            own.output_at_us = (
                timestamp if own.output_at_us is None else min(own.output_at_us, timestamp)
            )
        return self._fire_full(own, times, key, effects)

    def _fire_full(self, own: Filling, times: Times, key: Key, effects: Effects) -> Filling:
        """The window that continues to fill; a full one is emitted."""
        if own.count < self._count:
            return own
        # The other half of the check in :meth:`on_groups`: a pane of more would lack its own end.
        if own.count != self._count:
            raise InvariantError(f"a count window of {self._count} fires with {own.count} records")
        effects.panes.append(self._pane(own, key, times.watermark))
        return Filling(self._aggregation.create(), held_at_us=own.held_at_us)

    def _keep(
        self, own: Filling, had: bool, new: bool, state: KeyState, key: Key, effects: Effects
    ) -> None:
        """After records came: ``had`` some before, or is a ``new`` key."""
        if own.count and new:
            effects.timers.append(TimerEffect(key, SLOT, Domain.EVENT, LAST_TIME))
        if had or own.count:
            self._store(own, state, key, effects)

    def _store(self, own: Filling, state: KeyState, key: Key, effects: Effects) -> None:
        if own.output_at_us != own.held_at_us:
            effects.holds.append(HoldEffect(key, SLOT, own.output_at_us))
            own.held_at_us = own.output_at_us
        if own.count:
            state[SLOT] = own
        elif state.get(SLOT) is not None:
            del state[SLOT]
            effects.timers.append(TimerEffect(key, SLOT, Domain.EVENT, None))

    def _pane(self, own: Filling, key: Key, watermark: int) -> Pane:
        at = (
            min(max(own.latest, watermark), LAST_TIME)
            if own.output_at_us is None
            else own.output_at_us
        )
        return pane_of(
            key, Window(own.earliest, own.latest + 1), self._aggregation.result(own.acc), at=at
        )
