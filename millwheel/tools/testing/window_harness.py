"""One windowed grouping in memory: push records, move watermark and clock, take panes.

    harness = WindowHarness(window=Sessions("10s"), trigger=AfterWatermark(early=AfterCount(2)))
    harness.push_bundle([("ann", 1, 1_000_000), ("ann", 2, 4_000_000)])
    [pane] = harness.take()
    assert (pane.values, pane.timing) == ([1, 2], "early")

Every time is an int of µs; durations may also be text ("10s").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import (
    Aggregation,
    Collected,
    Named,
    NamedAggregation,
    SingleAggregation,
)
from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.aggregates.specs import field_reader
from millwheel.core.machines.choice import make_machine
from millwheel.core.model.keys import Key, check_key
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_us
from millwheel.core.windows.contract import (
    Effects,
    LatePolicy,
    LateRecord,
    RejectedRecord,
    Slot,
    Times,
    Windowing,
)
from millwheel.core.windows.lateness import final_at_us
from millwheel.core.windows.panes import Accumulation, OutputTime, Pane
from millwheel.core.windows.triggers import Default, Trigger
from millwheel.core.windows.windows import Count, Cumulative, Window, WindowFunction
from millwheel.errors import invariant
from millwheel.tools.testing.arguments import check_time, check_trigger, check_window, chosen

Aggregate = Aggregator[Any] | str | Mapping[str, Any] | None


class WindowHarness:
    """A windowed grouping whose every step is visible.

    ``aggregate`` None collects the values (``pane.values``); a function name ("sum") or an
    Aggregator reduces them; a mapping as in YAML, ``{"hits": "count", "bytes": {"sum": "size"}}``,
    gives named results of dict records. ``takes_retractions`` allows ``Retraction(value)`` as
    input. With ``stored`` the state is encoded and decoded at every access, as the runtime does it.
    """

    def __init__(
        self,
        window: WindowFunction,
        trigger: Trigger | None = None,
        accumulation: str = "discarding",
        allowed_lateness: str | int = 0,
        output_time: str = "end_of_window",
        aggregate: Aggregate = None,
        *,
        late: str = "drop",
        takes_retractions: bool = False,
        stored: bool = False,
    ) -> None:
        self.windowing = Windowing(
            window=check_window(window),
            trigger=Default() if trigger is None else check_trigger(trigger),
            accumulation=chosen(Accumulation, accumulation, "accumulation"),
            allowed_lateness=duration_us(allowed_lateness),
            output_time=chosen(OutputTime, output_time, "output_time"),
            late=chosen(LatePolicy, late, "late"),
            takes_retractions=takes_retractions,
        )
        self.aggregation = _aggregation(aggregate)
        self.machine = make_machine(self.windowing, self.aggregation)
        self.watermark = MIN_TIME
        self.now = 0
        self.percentiles: dict[float, int] = {}
        self.late: list[LateRecord] = []
        """Late records that no window accepted, in order."""
        self.rejected: list[RejectedRecord] = []
        """Records that the aggregation could not use."""
        self.holds: dict[tuple[Key, str], int] = {}
        """The output times at which windows hold the output watermark."""
        self._stored = stored
        self._states: dict[Key, Any] = {}
        self._timers = {domain: TimerQueue(domain) for domain in Domain}
        self._shares: dict[float, TimerQueue] = {}
        self._panes: list[Pane] = []

    # --- input ------------------------------------------------------------------------------------

    def push(self, key: Key, value: Any, timestamp: int) -> None:
        """Push one record, as a bundle of its own."""
        self.push_bundle([(key, value, timestamp)])

    def push_bundle(self, records: Sequence[tuple[Key, Any, int]]) -> None:
        """Push records that arrive together: all are added, then each window's trigger is evaluated
        once. ``records`` are (key, value, timestamp)."""
        by_key: dict[Key, list[tuple[Any, int]]] = {}
        for key, value, timestamp in records:
            by_key.setdefault(check_key(key), []).append(
                (value, check_time(timestamp, "timestamp"))
            )
        for key, own in by_key.items():
            effects = Effects()
            self.machine.on_records(self._state(key), key, own, self._times(), effects)
            self._perform(effects)
        self._fire_due()

    def advance_watermark(self, t: int, share: float | None = None) -> None:
        """State that no record before ``t`` will follow, except late ones. Windows and timers that
        are due fire.

        With a ``share`` it is the watermark of that share of the input (see
        AfterPercentileWatermark).
        """
        check_time(t, "the watermark", MAX_TIME)
        if share is not None:
            self.percentiles[share] = t
        elif t < self.watermark:
            raise ValueError(
                f"a watermark never goes back: it is {self.watermark}, and {t} is before that"
            )
        else:
            self.watermark = t
        self._fire_due()

    def advance_processing_time(self, t: int) -> None:
        """Move the wall clock to ``t`` (it starts at 0). Windows and timers that are due fire."""
        if check_time(t, "the clock") < self.now:
            raise ValueError(f"the clock is at {self.now} and cannot go back to {t}")
        self.now = t
        self._fire_due()

    # --- output -----------------------------------------------------------------------------------

    def take(self) -> list[Pane]:
        """The panes since the last call, in the order in which they fired."""
        self.validate()
        panes, self._panes = self._panes, []
        return panes

    def validate(self) -> None:
        """Raise InvariantError unless every open window has a timer that closes it, and every timer
        and hold a window. :meth:`take` calls it."""
        due: dict[Key, int] = {}
        for queue in self._timers.values():
            queue.validate()
        for key, _, at in self._timers[Domain.EVENT].items():
            due[key] = min(at, due.get(key, at))
        for key, state in self._states.items():
            for window in self.machine.open_windows(state, list(state)):
                closes = self._closes_at(window)
                timed = closes is None or due.get(key, MAX_TIME) <= closes
                invariant(timed, f"{window} of {key!r} is open, and no timer closes it by {closes}")
        keys = {key for queue in self._timers.values() for key, _, _ in queue.items()}
        keys |= {key for key, _ in self.holds}
        stateless = [key for key in keys if not list(self._states.get(key, ()))]
        invariant(not stateless, f"the keys {stateless} have timers or holds, and no state")

    def _closes_at(self, window: Window) -> int | None:
        """By when a window needs a timer (MAX_TIME - 1: at some time), None where time does not
        close it. Cumulative windows are closed with their whole period, which is longer."""
        kind = self.windowing.window
        closes = final_at_us(window.end, self.windowing.allowed_lateness)
        if isinstance(kind, Count) or closes >= MAX_TIME - 1:
            return None
        return MAX_TIME - 1 if isinstance(kind, Cumulative) else closes

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state and still take records, ordered by end."""
        state = self._state(check_key(key))
        return self.machine.open_windows(state, list(state))

    def closed_windows(self, key: Key) -> list[Window]:
        """The windows of a key whose trigger has finished, remembered until they are collected."""
        state = self._state(check_key(key))
        return self.machine.closed_windows(state, list(state))

    def state_of(self, key: Key) -> dict[Slot, Any]:
        """A copy of the state of a key; empty once all its windows are collected."""
        state = self._state(check_key(key))
        return {
            slot: msgspec.to_builtins(state.get(slot), builtin_types=(bytes,))
            for slot in list(state)
        }

    def timers(self, key: Key) -> list[tuple[Domain, str, int]]:
        """The timers of a key."""
        timers = [
            (domain, tag, at)
            for domain, queue in self._timers.items()
            for k, tag, at in queue.items()
            if k == key
        ]
        return sorted(timers, key=lambda timer: (timer[2], timer[1]))

    @property
    def hold(self) -> int | None:
        """The time at which the output watermark is held, None if it is not."""
        return min(self.holds.values(), default=None)

    # --- inside -----------------------------------------------------------------------------------

    def _state(self, key: Key) -> Any:
        return self._states.setdefault(key, _StoredState() if self._stored else {})

    def _times(self) -> Times:
        return Times(self.watermark, self.now, dict(self.percentiles))

    def _fire_due(self) -> None:
        while (due := self._next_due()) is not None:
            effects = Effects()
            key, tag, domain, at = due
            self.machine.on_timer(self._state(key), key, tag, domain, at, self._times(), effects)
            self._perform(effects)

    def _next_due(self) -> tuple[Key, str, Domain, int] | None:
        queues = [
            (self._timers[Domain.EVENT], self.watermark),
            (self._timers[Domain.PROCESSING], self.now),
        ]
        queues += [
            (queue, self.percentiles[s])
            for s, queue in self._shares.items()
            if s in self.percentiles
        ]
        for queue, clock in queues:
            due = queue.pop_due(clock)
            if due is not None:
                return due.key, due.tag, due.domain, due.at
        return None

    def _perform(self, effects: Effects) -> None:
        self._panes += effects.panes
        self.late += effects.late
        self.rejected += effects.rejected
        for timer in effects.timers:
            queue = self._timers[timer.domain]
            if timer.share is not None:
                queue = self._shares.setdefault(timer.share, TimerQueue(timer.domain))
            if timer.at is None:
                queue.cancel(timer.key, timer.tag)
            else:
                queue.set(timer.key, timer.tag, timer.at)
        for hold in effects.holds:
            if hold.at is None:
                self.holds.pop((hold.key, hold.tag), None)
            else:
                self.holds[hold.key, hold.tag] = hold.at


class _StoredState:
    """State as a store keeps it: bytes."""

    def __init__(self) -> None:
        self._stored: dict[Any, bytes] = {}

    def get(self, slot: Any, default: Any = None) -> Any:
        data = self._stored.get(slot)
        return default if data is None else msgspec.msgpack.decode(data)

    def __setitem__(self, slot: Any, value: Any) -> None:
        self._stored[slot] = msgspec.msgpack.encode(value)

    def __delitem__(self, slot: Any) -> None:
        del self._stored[slot]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stored)


def _aggregation(aggregate: Aggregate) -> Aggregation:
    if aggregate is None:
        return Collected()
    if isinstance(aggregate, Aggregator):
        return SingleAggregation(aggregate)
    if isinstance(aggregate, str):
        return SingleAggregation(make_aggregator(aggregate, {}))
    if not isinstance(aggregate, Mapping):
        raise ValueError(
            f"aggregate={aggregate!r}: give a function name, an Aggregator, or {{name: {{function:"
            " field}}"
        )
    return NamedAggregation([_named(name, each) for name, each in aggregate.items()])


def _named(name: str, aggregate: Any) -> Named:
    if isinstance(aggregate, Aggregator):
        return Named(name, aggregate)
    settings = {aggregate: ""} if isinstance(aggregate, str) else dict(aggregate)
    function, argument = next(iter(settings.items()))
    options = {option: value for option, value in settings.items() if option != function}
    aggregator = make_aggregator(function, options)
    return Named(
        name,
        aggregator,
        argument,
        field_reader(argument, not aggregator.needs_argument) if argument else None,
    )
