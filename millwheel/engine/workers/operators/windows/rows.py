"""Runs a declarative aggregation: windows, triggers and aggregates of a computation, a bundle at a
time.

The records of a bundle are grouped by key, and each key's windows are touched once per bundle. Each
pane becomes a record on every output of the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from millwheel.adapters.ports import StoreView
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.formats.store_layout import WINDOW, key_prefix, unpack
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.machines.counts import CountMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.machines.key_windows import KeyWindowMachine
from millwheel.core.machines.specs import machine_from_spec, window_from_spec
from millwheel.core.model.failures import in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.names import groups_of
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.production_ids import (
    Cause,
    aside_cause,
    pane_cause,
    record_causes,
    window_timer_cause,
)
from millwheel.core.pipeline.skew import hash_of_keys
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import WindowedSpec
from millwheel.core.windows.calls import Group, TakesGroups
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.windows import Window
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.bundle import RECORD, Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator, Validated
from millwheel.engine.workers.delivery.row_groups import are_groups, received
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.windows.outputs import WindowOutputs
from millwheel.engine.workers.operators.windows.table import (
    KeyRecords,
    ShareTimers,
    WindowCells,
    WindowHolds,
)
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.window_results import WindowAnswers, WindowResults
from millwheel.errors import InvariantError

_OF_A_PERIOD = 4
"""Timers that a cumulative window counts as when it fires: it may add up large sets."""


class WindowedOperator(Operator, Validated):
    """The operator of a computation with ``window`` and ``aggregate``."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
    ) -> None:
        hashed = hash_of_keys(spec)
        self.share_timers = ShareTimers(overlay, {}, hashed)
        self._identified = spec.identified
        self._spec = spec
        self._decode = decode
        self._overlay = overlay
        self._cells = WindowCells(overlay, cache_entries, pipeline.limits.state, hashed)
        self._machine = machine_from_spec(
            spec,
            language_of(pipeline).compile,
            lambda name: load_object(name, pipeline.folder),
            takes_retractions(spec, pipeline),
        )
        results = WindowResults(overlay, pipeline.limits.state, hashed) if spec.queryable else None
        self.outputs = WindowOutputs(spec, pipeline, results)
        self._holds = WindowHolds(overlay, hashed)

    @property
    def emits_late(self) -> bool:
        return bool(self._spec.late_side)

    def wakes_at(self, now_us: int) -> int:
        return now_us if self.share_timers.due() else MAX_TIME

    def due_with(self, at: int, watermark: int) -> int:
        machine = self._machine
        return (
            _OF_A_PERIOD * machine.due_with(at, watermark)
            if isinstance(machine, CumulativeMachine)
            else 1
        )

    def run(self, bundle: Bundle) -> None:
        self.run_with((), bundle)

    def run_with(self, late: Iterable[tuple[Key, Group]], bundle: Bundle) -> None:
        """Run a bundle with whose records these groups come, of windows that have fired
        elsewhere."""
        times = Times(bundle.watermark, bundle.now_us, self.share_timers.passed)
        self._fire(bundle.fires(Domain.EVENT), times, bundle)
        self._fire(self.share_timers.pop_due(), times, bundle)
        if groups := self.received(bundle):
            self._take_received(groups, times, bundle)
        if late:
            self.take_groups(late, bundle)
        self._take(bundle, times)
        self._fire(bundle.fires(Domain.PROCESSING), times, bundle)
        self._write_holds()

    def received(self, bundle: Bundle) -> list[tuple[Key, Group]]:
        """The groups that have come in rows, of windows that are open; only records are left in the
        bundle."""
        name = groups_of(self._spec.name)
        arrivals = [arrival for arrival in bundle.arrivals if are_groups(arrival.batch, name)]
        if not arrivals:
            return []
        window = window_from_spec(self._spec.work_as(WindowedSpec).window)
        result = received(arrivals, self.outputs.only_stream(), window, bundle.watermark)
        others = [arrival for arrival in bundle.arrivals if not are_groups(arrival.batch, name)]
        bundle.arrivals = [*others, *result.records]
        bundle.try_(RECORD, result.beyond_one)
        if result.late:
            bundle.count("late", result.late)
        return result.groups

    def _take_received(
        self, groups: Iterable[tuple[Key, Group]], times: Times, bundle: Bundle
    ) -> None:
        """Take groups that came in rows."""

        def take(key: Key, of_key: list[Group], effects: Effects) -> None:
            self._machine.on_groups(self._cells.of(key), key, of_key, times, effects)  # type: ignore[attr-defined]

        self._take_by_key(groups, take, bundle)

    def take_groups(
        self, groups: Iterable[tuple[Key, Group]], bundle: Bundle, closed: int | None = None
    ) -> None:
        """Take records that were aggregated elsewhere, of windows that are open. ``closed``: they
        are all that columns hold, of key windows that have emitted steps up to this time (µs), or
        of other windows that have fired."""
        machine, times = self._machine, Times(bundle.watermark, bundle.now_us)
        if not isinstance(machine, TakesGroups):
            raise InvariantError(f"{self._spec.name}: its windows take no groups")

        def take(key: Key, of_key: list[Group], effects: Effects) -> None:
            self._take_groups_of(machine, key, of_key, closed, times, effects)

        self._take_by_key(groups, take, bundle)
        self._write_holds()

    def _take_by_key(
        self,
        groups: Iterable[tuple[Key, Group]],
        take: Callable[[Key, list[Group], Effects], None],
        bundle: Bundle,
    ) -> None:
        """Take the groups of each key. Where the user's aggregator cannot merge those of a key,
        they are a dead letter together."""
        of_keys: dict[Key, list[Group]] = {}
        for key, group in groups:
            of_keys.setdefault(key, []).append(group)
        shared = Effects()
        for key, of_key in of_keys.items():
            effects = Effects()
            try:
                take(key, of_key, effects)
            except BaseException as ex:
                if passes(ex):
                    raise
                self._cells.drop(key)  # it may have half of the call's changes
                self.outputs.lose(key, of_key, ex, bundle)
            else:
                _join(shared, effects)
        self._perform(shared, None, bundle)
        self._flush(None, bundle)

    def _take_groups_of(
        self,
        machine: TakesGroups,
        key: Key,
        groups: list[Group],
        closed: int | None,
        times: Times,
        effects: Effects,
    ) -> None:
        if closed is not None and isinstance(machine, KeyWindowMachine):
            machine.take_over(self._cells.of(key), key, groups, closed, times, effects)
        elif closed is not None and isinstance(machine, AlignedMachine):
            machine.on_fired(self._cells.of(key), key, groups, times, effects)
        else:
            machine.on_groups(self._cells.of(key), key, groups, times, effects)

    def hold(self, now_us: int) -> Hold:
        return self._holds.lowest()

    def validate(self, state: StoreView) -> None:
        self._cells.validate(state)
        self._holds.validate(state)
        self.share_timers.validate(state)

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state and still take records, ordered by end."""
        prefix = key_prefix(WINDOW, key, hash_of_keys(self._spec)(key))
        stored = [unpack(store_key[len(prefix) :]) for store_key, _ in self._overlay.scan(prefix)]
        slots: list[Any] = [tuple(slot) if isinstance(slot, list) else slot for slot in stored]
        return self._machine.open_windows(self._cells.of(key), slots)

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """Its open windows, and the newest result where it is kept."""
        return self.answer_with(query, [], state, watermark_us)

    def answer_with(
        self, query: Query, more: Sequence[tuple[Window, Any]], state: StoreView, watermark_us: int
    ) -> Finding:
        """The same with ``more`` open windows, and their results."""
        return WindowAnswers(self._spec, self._machine, self.outputs.finish_row).answer(
            query, more, state, watermark_us
        )

    # --- timers -----------------------------------------------------------------------------------

    def _fire(self, due: Iterable[Due], times: Times, bundle: Bundle) -> None:
        for timer in due:
            effects = Effects()
            cells = self._cells.of(timer.key)
            cause = window_timer_cause(timer) if self._identified else None
            times.most = max(bundle.room // _OF_A_PERIOD, 1)
            try:
                self._machine.on_timer(
                    cells, timer.key, timer.tag, timer.domain, timer.at, times, effects
                )
            # the user's aggregator: its window cannot fire, the others can
            except BaseException as ex:
                if passes(ex):
                    raise
                self._cells.drop(timer.key)
                failed = aside_cause(cause, "failed", timer.at)
                self.outputs.could_not_fire(bundle, timer.key, timer.tag, timer.at, ex, failed)
            else:
                if isinstance(self._machine, CumulativeMachine):
                    bundle.fired_more += _OF_A_PERIOD * len(effects.panes)
                self._perform(effects, cause, bundle)
                self._flush(cause, bundle)

    # --- records ----------------------------------------------------------------------------------

    def _take(self, bundle: Bundle, times: Times) -> None:
        by_key: dict[Key, KeyRecords] = {}
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            values = self._decode(batch.stream, batch.values)
            for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
                gathered = by_key.get(key)
                if gathered is None:
                    gathered = by_key[key] = KeyRecords()
                gathered.records.append((value, timestamp))
            if len(self._spec.inputs) > 1:
                for key in batch.keys:
                    by_key[key].streams.append(batch.stream)
            if self._identified:
                for key, cause in zip(
                    batch.keys, record_causes(batch, arrival.channel), strict=True
                ):
                    by_key[key].causes.append(cause)
        shared = Effects()
        for key, gathered in by_key.items():
            try:
                results = self._try(key, gathered, times)
            except BaseException as ex:  # some record of this key: find it
                if passes(ex):
                    raise
                # The cells may have half of the failed call's changes: the state is read again from
                # the store.
                self._cells.drop(key)
                self._take_one_by_one(key, gathered, times, bundle)
                continue
            for effects, cause in results:
                if cause is None:
                    _join(shared, effects)
                else:
                    self._perform(effects, cause, bundle)
            if self._identified:
                self._flush(gathered.causes[-1], bundle)
        self._perform(shared, None, bundle)
        self._flush(None, bundle)

    def _try(self, key: Key, gathered: KeyRecords, times: Times) -> list[tuple[Effects, Cause]]:
        """The results of a key's records, and the records that caused them.

        Productions with ids are named by the record that caused them. So the windows take records
        one by one then, and the productions do not depend on bundles, which differ after a
        crash."""
        cells, on_records = self._cells.of(key), self._machine.on_records
        if not self._identified:
            effects = Effects()
            on_records(cells, key, gathered.records, times, effects)
            gathered.name_streams(effects)
            return [(effects, None)]
        results: list[tuple[Effects, Cause]] = []
        for record, cause in zip(gathered.records, gathered.causes, strict=True):
            effects = Effects()
            on_records(cells, key, [record], times, effects)
            gathered.name_streams(effects)
            results.append((effects, cause))
        return results

    def _take_one_by_one(
        self, key: Key, gathered: KeyRecords, times: Times, bundle: Bundle
    ) -> None:
        causes, streams = gathered.causes or repeat(None), gathered.streams or repeat("")
        for (value, timestamp), cause, stream in zip(
            gathered.records, causes, streams, strict=False
        ):
            effects = Effects()
            try:
                self._machine.on_records(
                    self._cells.of(key), key, [(value, timestamp)], times, effects
                )
            except BaseException as ex:  # the user's aggregator on this record
                if passes(ex):
                    raise
                self._cells.drop(key)
                reason = f"aggregation failed: {in_words(ex)}"
                self.outputs.letter(
                    bundle,
                    key,
                    value,
                    timestamp,
                    reason,
                    aside_cause(cause, "failed", 0),
                    stream=stream,
                )
            else:
                gathered.name_streams(effects)
                self._perform(effects, cause, bundle)
                self._flush(cause, bundle)

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effects: Effects, cause: Cause, bundle: Bundle) -> None:
        """Perform the requests of a call of the machine. ``cause`` is the subject of the call, if
        productions have ids."""
        for timer in effects.timers:
            if timer.share is not None:
                self.share_timers.set(timer)
                continue
            queue = bundle.timers[timer.domain]
            if timer.at is None:
                queue.cancel(timer.key, timer.tag)
            else:
                queue.set(timer.key, timer.tag, timer.at)
        self._holds.take(effects.holds)
        for pane in effects.panes:
            self._emit(
                pane,
                (
                    pane_cause(cause, pane, not isinstance(self._machine, CountMachine))
                    if self._identified
                    else None
                ),
                bundle,
            )
        for number, late in enumerate(effects.late):
            self.outputs.late(late, aside_cause(cause, "late", number), bundle)
        for number, bad in enumerate(effects.rejected):
            self.outputs.refuse(bad, aside_cause(cause, "bad", number), bundle)

    def _flush(self, cause: Cause, bundle: Bundle) -> None:
        """Write the state of the windows. State that cannot be written is reported and dropped."""
        self._cells.flush()
        for number, (key, slot, why) in enumerate(self._cells.unstorable):
            aside = aside_cause(cause, "unstorable", number)
            self.outputs.unstorable(key, slot, why, aside, bundle)
        self._cells.unstorable.clear()

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        """Emit the result of a window that has fired; a callback is called here."""
        self.outputs.pane(pane, cause, bundle)

    def _write_holds(self) -> None:
        self.share_timers.write()
        self._holds.write()


def _join(into: Effects, more: Effects) -> None:
    into.panes += more.panes
    into.timers += more.timers
    into.holds += more.holds
    into.late += more.late
    into.rejected += more.rejected
