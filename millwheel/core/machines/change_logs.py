"""The machine of change logs: one group for each key, without an end, whose result is emitted as it
changes.

A version has the latest time of the records that its group has had. So the last version of a key is
a function of the records, and so is its time, unless records are taken back: a group without
records is forgotten. Which versions come before the last one depends on bundles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call, Group, Taken
from millwheel.core.windows.combinations import EACH_BUNDLE
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
from millwheel.core.windows.panes import Accumulation, Timing
from millwheel.core.windows.state import WindowState, as_state, tag_of, window_of
from millwheel.core.windows.windows import GLOBAL_WINDOW, Forever, Window
from millwheel.errors import RecordError


class ChangeLogMachine(AlignedMachine):
    """Groups without an end. ``output_at_us`` of a group is the latest time that it has seen."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Forever) -> None:
        super().__init__(windowing, aggregation)
        self._ttl_us = window.ttl
        self._plain = windowing.trigger == EACH_BUNDLE
        self._simple = self._plain and not self._undoes and self._stated_in is None
        """Whether a record is either added to its group or refused, without other checks."""

    def expired(self, window: Window, watermark: int) -> bool:
        """No group ends."""
        return False

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        if self._ttl_us is None:
            if self._simple:
                self._take_all(Call(state, key, times, effects), records)
            else:
                super().on_records(state, key, records, times, effects)
            return
        # Records of one life of the group together, as if each life had come in its own bundles.
        newest = self._newest(state)
        numbered = []
        life = 0
        for record in records:
            if self._counts(record[0]):
                if newest is not None and record[1] - newest > self._ttl_us:
                    life += 1
                newest = record[1] if newest is None else max(newest, record[1])
            numbered.append((life, record))
        for life, several in groupby(numbered, lambda each: each[0]):
            if life:
                self._end(Call(state, key, times, effects))
            together = [record for _, record in several]
            super().on_records(state, key, together, times, effects)

    def _take_all(self, call: Call, records: Sequence[tuple[Any, int]]) -> None:
        """As :meth:`AlignedMachine.on_records`, with fewer checks."""
        prepare, taken = self.aggregation.prepare, Taken()
        for index, (value, timestamp) in enumerate(records):
            try:
                prepared = prepare(value)
            except RecordError as ex:
                call.effects.rejected.append(rejected(call.key, value, timestamp, ex))
                continue
            if prepared is not FILTERED:
                taken.rows.append((index, timestamp, prepared, value))
        if taken.rows:
            own = as_state(call.state.get(GLOBAL_WINDOW)) or self._born(
                GLOBAL_WINDOW, call.times.watermark
            )
            self._take(own, GLOBAL_WINDOW, taken, call)
            self._settle(GLOBAL_WINDOW, own, GLOBAL_WINDOW, call)

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """Groups of a bundle: the records of one life of the group, see :meth:`spans_lives`."""
        call = Call(state, key, times, effects)
        for group in groups:
            if self._ttl_us is not None and (newest := self._newest(state)) is not None:
                assert group.earliest is not None
                if group.earliest - newest > self._ttl_us:
                    self._end(call)
            own = as_state(state.get(GLOBAL_WINDOW)) or self._born(GLOBAL_WINDOW, times.watermark)
            self._take_group(own, group, call)
            self._settle(GLOBAL_WINDOW, own, GLOBAL_WINDOW, call)

    def on_fired(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """Take over groups whose last version has been emitted elsewhere. Only where each bundle
        emits one."""
        for group in groups:
            own = self._born(GLOBAL_WINDOW, times.watermark)
            own.acc = self.aggregation.merge(own.acc, group.acc)
            own.count, own.output_at_us = group.count, group.latest
            if self.windowing.accumulation is Accumulation.RETRACTING:
                pane = self._pane(own, GLOBAL_WINDOW, key, Timing.EARLY, False)
                own.index, own.emitted = 1, [self._remember(pane)]
            self._renew(own, Call(state, key, times, effects))
            state[GLOBAL_WINDOW] = own

    def spans_lives(self, state: KeyState, group: Group) -> bool:
        """Whether some of a bundle's records of a key may belong to the present group, and others
        to one that begins anew: then each is processed alone, in order of arrival."""
        if self._ttl_us is None:
            return False
        assert group.earliest is not None
        assert group.latest is not None
        newest = self._newest(state)
        first = group.earliest if newest is None else min(newest, group.earliest)
        anew = newest is not None and group.earliest - newest > self._ttl_us
        return group.latest - (group.earliest if anew else first) > self._ttl_us

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
        own = as_state(state.get(GLOBAL_WINDOW)) if window_of(tag) == GLOBAL_WINDOW else None
        if own is None:
            return
        call = Call(state, key, self._requests.clocks_of(own, tag, domain, at, times), effects)
        if is_behind(self._forgotten_at(own), call.times.watermark):
            self._end(call)
            return
        if domain is Domain.EVENT and call.times.watermark == MAX_TIME and own.fresh:
            self._fire(own, GLOBAL_WINDOW, call, False)  # there is nothing more to wait for
        self._settle(GLOBAL_WINDOW, own, GLOBAL_WINDOW, call)

    def _counts(self, value: Any) -> bool:
        """Whether a record is neither left out nor refused."""
        try:
            return self.aggregation.prepare(self._split(value)[0]) is not FILTERED
        except RecordError:
            return False

    def _newest(self, state: KeyState) -> int | None:
        own = as_state(state.get(GLOBAL_WINDOW))
        return None if own is None else own.output_at_us

    def _forgotten_at(self, own: WindowState) -> int:
        """The group is forgotten once the watermark has passed this."""
        if self._ttl_us is None or own.output_at_us is None:
            return MAX_TIME
        return min(own.output_at_us + self._ttl_us, MAX_TIME)

    def _end(self, call: Call) -> None:
        """Forget a group. Its last version stays valid."""
        own = as_state(call.state.get(GLOBAL_WINDOW))
        if own is None:
            return
        if own.fresh:
            self._emit(own, GLOBAL_WINDOW, call, False)
        self._drop(own, call)

    def _take(self, own: WindowState, window: Window, taken: Taken, call: Call) -> None:
        super()._take(own, window, taken, call)
        latest = max(taken.timestamps + [gone.timestamp for gone in taken.gone])
        at = own.output_at_us
        own.output_at_us = latest if at is None else max(at, latest)

    def _take_group(self, own: WindowState, group: Group, call: Call) -> None:
        super()._take_group(own, group, call)
        assert group.latest is not None
        at = own.output_at_us
        own.output_at_us = group.latest if at is None else max(at, group.latest)

    def _emit(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        at = own.output_at_us
        super()._emit(own, window, call, last)
        own.output_at_us = at

    def _settle(self, slot: Slot, own: WindowState, window: Window, call: Call) -> None:
        due = own.fresh if self._plain else self._trigger.ready(own.trigger, call.moment(window))
        if due:
            self._fire(own, window, call, False)
        if self._undoes and not own.count and not own.fresh:
            self._drop(own, call)  # all its records have been taken back
            return
        self._renew(own, call)
        call.state[GLOBAL_WINDOW] = own

    def _drop(self, own: WindowState, call: Call) -> None:
        self._requests.drop(GLOBAL_WINDOW, own, call)
        if call.state.get(GLOBAL_WINDOW) is not None:
            del call.state[GLOBAL_WINDOW]

    def _held_at(self, own: WindowState, watermark: int) -> int | None:
        """A version to be emitted has the latest time of its group. If that is late when it comes,
        nothing can be held; a hold that stands stays, though its time is past: the output watermark
        has not passed it."""
        at = own.output_at_us if own.fresh else None
        if at is None or (own.held_at_us is None and is_behind(at, watermark)):
            return None
        return at

    def _renew(self, own: WindowState, call: Call) -> None:
        """Ask to be called when the group is forgotten, when its trigger requires it, and, with
        something to emit, at the end of the input."""
        at = self._forgotten_at(own)
        if own.fresh:
            at = min(at, MAX_TIME - 1)
        if at < MAX_TIME and (own.timer_at_us is None or own.timer_at_us > at):
            own.timer_at_us = at
            tag = tag_of(GLOBAL_WINDOW)
            call.effects.timers.append(TimerEffect(call.key, tag, Domain.EVENT, at))
        if not self._plain or own.clock_at_us is not None:
            self._requests.renew_clock(GLOBAL_WINDOW, own, call)
        held = self._held_at(own, call.times.watermark)
        if held != own.held_at_us:
            own.held_at_us = held
            call.effects.holds.append(HoldEffect(call.key, tag_of(GLOBAL_WINDOW), held))
