"""What holds for every window, trigger and mode, whatever comes in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Growing
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.calls import Group
from millwheel.core.windows.combinations import (
    AfterAll,
    AfterAny,
    AfterEach,
    Once,
    OrFinally,
    Repeat,
)
from millwheel.core.windows.contract import Effects, Times, Windowing
from millwheel.core.windows.panes import Accumulation, Pane, Timing
from millwheel.core.windows.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)
from millwheel.core.windows.windows import (
    Cumulative,
    Global,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.testing import WindowHarness

leaves: st.SearchStrategy[Trigger] = st.sampled_from(
    [
        Default(),
        Never(),
        AfterCount(1),
        AfterCount(3),
        AfterBytes(4),
        AfterProcessingTime(5),
        AfterProcessingTime(0, 7),
        AfterPercentileWatermark(0.5),
        AfterWatermark(),
    ]
)
triggers = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Repeat, inner),
        st.builds(Once, inner),
        st.builds(AfterAny, inner, inner),
        st.builds(AfterAll, inner, inner),
        st.builds(AfterEach, inner, inner),
        st.builds(OrFinally, inner, inner),
        st.builds(AfterWatermark, st.none() | inner, st.none() | inner),
    ),
    max_leaves=4,
)
single = st.sampled_from([Tumbling(10), Tumbling(7, 3), Sessions(6), Global()])
several = st.sampled_from([Sliding(10, 5), Sliding(9, 4, 1), Cumulative(20, 5)])
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"),
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 50)), max_size=4),
        ),
        st.tuples(st.just("watermark"), st.integers(0, 20)),
        st.tuples(st.just("clock"), st.integers(0, 10)),
        st.tuples(st.just("share"), st.integers(0, 20)),
    ),
    max_size=15,
)
modes = st.sampled_from(["discarding", "accumulating", "retracting"])
output_times = st.sampled_from(["end_of_window", "earliest", "latest"])
lateness = st.sampled_from([0, 5, 1000])


class Play:
    """Plays steps on a harness, giving each record a value of its own, and watches the output
    watermark."""

    def __init__(self, harness: WindowHarness) -> None:
        self.harness = harness
        self.panes: list[Pane] = []
        self.pushed: dict[int, tuple[str, int]] = {}
        self.output_watermark = MIN_TIME

    def run(self, steps: list[Any]) -> Play:
        self.harness.advance_watermark(-30)
        for action, what in steps:
            self._step(action, what)
        self._step("watermark", MAX_TIME - self.harness.watermark)
        return self

    def _step(self, action: str, given: Any) -> None:
        harness = self.harness
        if action == "push":
            first = len(self.pushed)
            self.pushed.update({first + i: record for i, record in enumerate(given)})
            harness.push_bundle([(key, first + i, t) for i, (key, t) in enumerate(given)])
        elif action == "watermark":
            harness.advance_watermark(harness.watermark + given)
        elif action == "share":
            known = max(harness.percentiles.get(0.5, MIN_TIME), harness.watermark)
            harness.advance_watermark(known + given, share=0.5)
        else:
            harness.advance_processing_time(harness.now + given)
        new = harness.take()
        for pane in new:
            if not pane.retraction and pane.timing is not Timing.LATE:
                assert pane.timestamp >= self.output_watermark
        self.panes += new
        timers = [
            at for key in "ab" for domain, _, at in harness.timers(key) if domain is Domain.EVENT
        ]
        holds = [harness.hold] if harness.hold is not None else []
        self.output_watermark = max(
            self.output_watermark, min([harness.watermark, *timers, *holds])
        )

    def check_nothing_is_left(self) -> None:
        for key in "ab":
            assert self.harness.state_of(key) == {}
            assert self.harness.timers(key) == []
            assert self.harness.open_windows(key) == []
        assert self.harness.holds == {}


@settings(deadline=None, max_examples=150)
@given(window=single, trigger=triggers, steps=steps, late_by=lateness, output_time=output_times)
def test_discarding_panes_hold_every_record_exactly_once(
    window: WindowFunction, trigger: Trigger, steps: list[Any], late_by: int, output_time: str
) -> None:
    play = Play(WindowHarness(window, trigger, "discarding", late_by, output_time)).run(steps)
    emitted = Counter(value for pane in play.panes for value in pane.values)
    late = Counter(record.value for record in play.harness.late)
    assert emitted + late == Counter(list(play.pushed))
    for pane in play.panes:
        assert all(
            play.pushed[v][0] == pane.key and play.pushed[v][1] in _range(pane.window)
            for v in pane.values
        )
    play.check_nothing_is_left()


def _range(window: Window) -> range:
    return range(window.start, window.end)


@settings(deadline=None, max_examples=150)
@given(
    window=st.one_of(single, several),
    trigger=triggers,
    steps=steps,
    mode=modes,
    late_by=lateness,
    output_time=output_times,
)
def test_state_may_be_stored_at_any_moment(
    window: WindowFunction,
    trigger: Trigger,
    steps: list[Any],
    mode: str,
    late_by: int,
    output_time: str,
) -> None:
    live = Play(WindowHarness(window, trigger, mode, late_by, output_time)).run(steps)
    stored = Play(WindowHarness(window, trigger, mode, late_by, output_time, stored=True)).run(
        steps
    )
    assert live.panes == stored.panes
    assert live.harness.late == stored.harness.late
    stored.check_nothing_is_left()


@settings(deadline=None, max_examples=150)
@given(
    window=st.one_of(several, st.just(Tumbling(10))),
    trigger=triggers,
    steps=steps,
    mode=modes,
    late_by=lateness,
)
def test_the_panes_of_a_window_tell_its_story(
    window: WindowFunction, trigger: Trigger, steps: list[Any], mode: str, late_by: int
) -> None:
    """Indices count up, timings follow each other, and nothing comes after the last pane."""
    play = Play(WindowHarness(window, trigger, mode, late_by)).run(steps)
    stories: dict[Any, list[Pane]] = {}
    for pane in play.panes:
        stories.setdefault((pane.key, pane.window), []).append(pane)
    for panes in stories.values():
        emitted = [pane for pane in panes if not pane.retraction]
        assert [pane.index for pane in emitted] == list(range(len(emitted)))
        order = [[Timing.EARLY, Timing.ON_TIME, Timing.LATE].index(pane.timing) for pane in emitted]
        assert order == sorted(order)
        assert order.count(1) <= 1
        later = [pane.nonspeculative_index for pane in emitted if pane.timing is not Timing.EARLY]
        assert later == list(range(len(later)))
        assert all(
            pane.nonspeculative_index == -1 for pane in emitted if pane.timing is Timing.EARLY
        )
        assert not any(pane.is_last for pane in panes[:-1])
        _check_mode(panes, mode)


def _check_mode(panes: list[Pane], mode: str) -> None:
    """Accumulating panes only grow; a retraction repeats the pane that stands."""
    standing: Pane | None = None
    for pane in panes:
        if pane.retraction:
            assert standing is not None
            assert (pane.result, pane.index, pane.timestamp) == (
                standing.result,
                standing.index,
                standing.timestamp,
            )
            standing = None
            continue
        if mode == "retracting":
            assert standing is None
        if mode == "accumulating" and standing is not None:
            assert pane.values[: len(standing.values)] == standing.values
        standing = pane


@settings(deadline=None, max_examples=100)
@given(trigger=triggers, steps=steps, late_by=lateness)
def test_what_stands_of_retracting_sessions_is_each_record_once(
    trigger: Trigger, steps: list[Any], late_by: int
) -> None:
    play = Play(WindowHarness(Sessions(6), trigger, "retracting", late_by)).run(steps)
    standing: Counter[tuple[str, Window, tuple[Any, ...]]] = Counter()
    for pane in play.panes:
        standing[pane.key, pane.window, tuple(pane.values)] += -1 if pane.retraction else 1
        assert min(standing.values()) >= 0
    emitted = Counter(
        value for (_, _, values), count in standing.items() for value in values * count
    )
    late = Counter(record.value for record in play.harness.late)
    assert emitted + late == Counter(list(play.pushed))
    play.check_nothing_is_left()


@settings(deadline=None, max_examples=100)
@given(
    window=st.sampled_from([Tumbling(10), Sliding(10, 5), Cumulative(20, 5), Global()]),
    trigger=triggers.filter(lambda trigger: not trigger.needs_bytes),
    steps=steps,
    mode=modes,
    late_by=lateness,
    output_time=output_times,
)
def test_records_aggregated_per_window_beforehand_say_the_same(
    window: WindowFunction,
    trigger: Trigger,
    steps: list[Any],
    mode: str,
    late_by: int,
    output_time: str,
) -> None:
    """The column path: a bundle's accumulators are merged in, instead of its records being
    added."""
    rows = WindowHarness(window, trigger, mode, late_by, output_time, aggregate="sum")
    columns = WindowHarness(window, trigger, mode, late_by, output_time, aggregate="sum")
    machine = AlignedMachine(columns.windowing, columns.aggregation)
    rows.machine, columns.machine = (
        AlignedMachine(rows.windowing, rows.aggregation),
        _Columns(machine),
    )
    assert Play(rows).run(steps).panes == Play(columns).run(steps).panes


class _Columns:
    """Aggregates each bundle before it reaches the machine, as the column path does."""

    def __init__(self, machine: AlignedMachine) -> None:
        self._machine = machine
        self.on_timer = machine.on_timer
        self.open_windows = machine.open_windows
        self.closed_windows = machine.closed_windows

    def on_records(
        self, state: Any, key: Any, records: Any, times: Times, effects: Effects
    ) -> None:
        machine = self._machine
        closed = set(machine.closed_windows(state, list(state)))
        found: dict[Window, list[tuple[Any, int]]] = {}
        for value, timestamp in records:
            for window in machine.windowing.window.assign(timestamp):
                if window not in closed and not machine.expired(window, times.watermark):
                    found.setdefault(window, []).append((value, timestamp))
        groups = [self._group(window, rows, times.watermark) for window, rows in found.items()]
        machine.on_groups(state, key, groups, times, effects)

    def _group(self, window: Window, rows: list[tuple[Any, int]], watermark: int) -> Group:
        aggregation = self._machine.aggregation
        acc = aggregation.add_many(
            aggregation.create(), [value for value, _ in rows], [at for _, at in rows]
        )
        ahead = [at for _, at in rows if at >= watermark]
        return Group(window, acc, len(rows), min(ahead, default=None), max(ahead, default=None))


def test_of_records_that_only_grow_in_number_a_pane_is_remembered_by_that() -> None:
    windowing = Windowing(Tumbling(10), Repeat(AfterCount(1)), accumulation=Accumulation.RETRACTING)
    machine, state, effects = AlignedMachine(windowing, Growing()), {}, Effects()
    for value in "abc":
        machine.on_records(state, "k", [(value, 3)], Times(MIN_TIME, 0), effects)
    panes = [pane.result for pane in effects.panes if not pane.retraction]
    assert panes[-1] == [["a", 3], ["b", 3], ["c", 3]]
    assert [pane.result for pane in effects.panes if pane.retraction] == [1, 2]
