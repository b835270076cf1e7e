"""Runs a declarative aggregation: windows, triggers and aggregates of a computation, a bundle at a
time.

The records of a bundle are grouped by key, and each key's windows are touched once per bundle. Each
pane becomes a record on every output of the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from millwheel.adapters.ports import StoreView
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.aggregates.results import shown_by, shows_each
from millwheel.core.columns.from_spec import float_sums
from millwheel.core.formats.store_layout import WINDOW, key_prefix, unpack
from millwheel.core.machines.counted import CountMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.machines.fixed import AlignedMachine
from millwheel.core.machines.key_windows import KeyWindowMachine
from millwheel.core.machines.specs import machine_from_spec, window_from_spec
from millwheel.core.model.failures import in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.names import groups_of
from millwheel.core.model.records import DeadLetter, Domain
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.production_ids import (
    Cause,
    aside_cause,
    pane_cause,
    production_id,
    record_causes,
    window_timer_cause,
)
from millwheel.core.pipeline.skew import given_of, hash_of_keys
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import WindowedSpec
from millwheel.core.windows.calls import Group, TakesGroups
from millwheel.core.windows.contract import Effects, LateRecord, RejectedRecord, Times
from millwheel.core.windows.panes import RETRACTION_FIELD, Pane, pane_row
from millwheel.core.windows.tags import tag_of
from millwheel.core.windows.windows import Window
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.bundle import RECORD, TIMER, UNCARRIABLE, Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator, Validated
from millwheel.engine.workers.delivery.row_groups import are_groups, received
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.windows.window_state import (
    KeyRecords,
    ShareTimers,
    WindowCells,
    WindowHolds,
)
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.window_results import WindowAnswers, WindowResults
from millwheel.errors import InvariantError, RecordError

_OF_A_PERIOD = 4
"""A cumulative window that fires counts as so many timers: it may add up large sets."""


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
        self._pipeline = pipeline.name
        self._decode = decode
        self._overlay = overlay
        self._cells = WindowCells(overlay, cache_entries, pipeline.limits.state, hashed)
        self._head = spec.inputs[0].key.naming()
        self._bounded = not spec.is_change_log
        self.shown = shown_by(spec, language_of(pipeline).compile)
        self.shows_each = shows_each(spec)
        self.finish_row: Callable[[dict[str, Any]], dict[str, Any]] = finisher(spec, pipeline)
        self._machine = machine_from_spec(
            spec,
            language_of(pipeline).compile,
            lambda name: load_object(name, pipeline.folder),
            takes_retractions(spec, pipeline),
        )
        self._results = (
            WindowResults(overlay, pipeline.limits.state, hashed) if spec.queryable else None
        )
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
        result = received(arrivals, self._only_stream(), window, bundle.watermark)
        others = [arrival for arrival in bundle.arrivals if not are_groups(arrival.batch, name)]
        bundle.arrivals = [*others, *result.records]
        bundle.try_(RECORD, result.beyond_one)
        if result.late:
            bundle.count("late", result.late)
        return result.groups

    def _take_received(
        self, groups: Iterable[tuple[Key, Group]], times: Times, bundle: Bundle
    ) -> None:
        """Take groups that came in rows. Where the user's aggregator cannot merge those of a key,
        they are a dead letter together."""
        shared = Effects()
        for key, rows in groupby(groups, itemgetter(0)):
            several, effects = [group for _, group in rows], Effects()
            try:
                self._machine.on_groups(self._cells.of(key), key, several, times, effects)  # type: ignore[attr-defined]
            except BaseException as ex:
                if passes(ex):
                    raise
                self._lose_groups(bundle, key, several, ex)
            else:
                _join(shared, effects)
        self._perform(shared, None, bundle)
        self._flush(None, bundle)

    def take_groups(
        self, groups: Iterable[tuple[Key, Group]], bundle: Bundle, closed: int | None = None
    ) -> None:
        """Take records that were aggregated elsewhere, of windows that are open. ``closed``: they
        are all that columns hold, of key windows that have emitted steps up to this time (µs), or
        of other windows that have fired."""
        machine, times, effects = self._machine, Times(bundle.watermark, bundle.now_us), Effects()
        if not isinstance(machine, TakesGroups):
            raise InvariantError(f"{self._spec.name}: its windows take no groups")
        of_keys: dict[Key, list[Group]] = {}
        for key, group in groups:
            of_keys.setdefault(key, []).append(group)
        for key, own_groups in of_keys.items():
            own_effects = Effects()
            try:
                self._take_groups_of(machine, key, own_groups, closed, times, own_effects)
            except BaseException as ex:
                if passes(ex):
                    raise
                self._lose_groups(bundle, key, own_groups, ex)
            else:
                _join(effects, own_effects)
        self._perform(effects, None, bundle)
        self._flush(None, bundle)
        self._write_holds()

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

    def _lose_groups(
        self, bundle: Bundle, key: Key, groups: Sequence[Group], ex: BaseException
    ) -> None:
        """The aggregator cannot merge the groups of a key. They are a dead letter together."""
        # The cells may have half of the failed call's changes: the state is read again from the
        # store.
        self._cells.drop(key)
        together = sum(group.count for group in groups)
        reason = f"aggregation of {together} records together failed: {in_words(ex)}"
        self.letter(bundle, key, None, groups[0].window.end - 1, reason)

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
        return WindowAnswers(self._spec, self._machine, self.finish_row).answer(
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
                self.could_not_fire(bundle, timer.key, timer.tag, timer.at, ex, failed)
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
                self.letter(
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
            self._late(late, aside_cause(cause, "late", number), bundle)
        for number, bad in enumerate(effects.rejected):
            self.refuse(bad, aside_cause(cause, "bad", number), bundle)

    def _flush(self, cause: Cause, bundle: Bundle) -> None:
        """Write the state of the windows. State that cannot be written is reported and dropped."""
        self._cells.flush()
        for number, (key, slot, why) in enumerate(self._cells.unstorable):
            reason = (
                f"what window {tag_of(slot)} remembers cannot be stored, so its newest records are"
                f" lost: {why}; aggregators and triggers must keep plain data"
            )
            self.letter(
                bundle,
                key,
                None,
                bundle.floor,
                reason,
                aside_cause(cause, "unstorable", number),
                TIMER,
            )
        self._cells.unstorable.clear()

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        row = self.finish_row(pane_row(pane, self._head(pane.key), self._bounded))
        if self.shows_each:
            shown = self.show(row, pane.key, pane.timestamp, cause, bundle)
            if shown is None:
                return
            row = shown
        try:
            if self._results is not None:
                self._results.fired(pane, self.finish_row(dict(pane.result)))
        except UNCARRIABLE as ex:
            self._not_carried(row, pane.key, pane.timestamp, cause, bundle, ex)
        else:
            self.produce_row(row, pane.key, pane.timestamp, cause, bundle)

    def produce_row(
        self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle
    ) -> None:
        """Emit the row of a result, or a dead letter where it cannot be carried."""
        try:
            for number, stream in enumerate(self._spec.outputs):
                bundle.outputs.produce(stream, key, row, at, production_id(cause, number))
        except UNCARRIABLE as ex:  # an aggregator of the user's made it, or what then says
            self._not_carried(row, key, at, cause, bundle, ex)

    def _not_carried(
        self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle, ex: Exception
    ) -> None:
        reason = f"the result of a window cannot be carried: {ex}"
        self.letter(bundle, key, row, at, reason, cause, TIMER)

    def show(
        self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle
    ) -> dict[str, Any] | None:
        """The row of a result as it is emitted; None for one that is left out, or of which nothing
        can be made. That is a dead letter."""
        try:
            return self.shown(row)
        except RecordError as ex:
            if RETRACTION_FIELD not in row:  # that of a result of which this was told already
                reason = f"what then or having says cannot be made of a result: {ex}"
                self.letter(bundle, key, row, max(at, bundle.floor), reason, cause, TIMER)
            return None

    def _late(self, late: LateRecord, cause: Cause, bundle: Bundle) -> None:
        bundle.count("late")
        if side := self._spec.late_side:
            # Earlier than the floor, consumers would get the record behind what a predecessor has
            # published, late once more (emits_late makes the floor durable before it is published).
            at = max(late.timestamp, bundle.passed)
            bundle.outputs.produce(side, late.key, late.value, at, production_id(cause, 0))

    def refuse(self, bad: RejectedRecord, cause: Cause, bundle: Bundle) -> None:
        """Send a record that the aggregation cannot use to the dead letters."""
        stream = bad.stream or self._only_stream()
        who = f" (aggregate {bad.aggregate!r} of stream {stream!r})" if bad.aggregate else ""
        self.letter(
            bundle, bad.key, bad.value, bad.timestamp, bad.reason + who, cause, stream=stream
        )

    def _only_stream(self) -> str:
        return self._spec.inputs[0].stream if len(self._spec.inputs) == 1 else ""

    def letter(
        self,
        bundle: Bundle,
        key: Key,
        value: Any,
        timestamp: int,
        reason: str,
        cause: Cause = None,
        what: str = RECORD,
        stream: str = "",
    ) -> None:
        """Send what could not be used to the dead letters: a call about ``what`` failed. ``cause``
        is what their ids are made of."""
        stream = stream or self._only_stream()
        letter = DeadLetter(self._pipeline, self._spec.name, stream, reason, key, value, timestamp)
        bundle.dead_letter(letter, max(timestamp, bundle.floor), cause, what)

    def could_not_fire(
        self, bundle: Bundle, key: Key, tag: str, at: int, ex: BaseException, cause: Cause = None
    ) -> None:
        """The aggregator of a window has no result for what it holds."""
        reason = f"window {tag} could not fire: {in_words(ex)}"
        self.letter(bundle, key, None, max(at, bundle.floor), reason, cause, TIMER)

    def _write_holds(self) -> None:
        self.share_timers.write()
        self._holds.write()


def _join(into: Effects, more: Effects) -> None:
    into.panes += more.panes
    into.timers += more.timers
    into.holds += more.holds
    into.late += more.late
    into.rejected += more.rejected


def finisher(
    spec: ComputationSpec, pipeline: PipelineSpec
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that makes the row of a result final. Accumulators do not tell which fields were
    declared as floats: their sums are floats as those of an aggregation in columns, also where
    nothing was summed."""
    floats: tuple[str, ...] = ()
    if spec.stage is AggregationStage.FINAL:
        floats = float_sums(spec, given_of(spec, pipeline).fields, language_of(pipeline).compile)
    elif spec.stage is AggregationStage.WHOLE and len(spec.inputs) == 1:
        floats = float_sums(
            spec, pipeline.stream(spec.inputs[0].stream).fields, language_of(pipeline).compile
        )

    def finish(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, **{name: float(row[name]) for name in floats}}

    return finish if floats else dict
