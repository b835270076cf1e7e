"""Runs a computation that keeps slices: one accumulator for each key, level and slice, changed by
commits of bundles.

Nothing is emitted and nothing holds the watermark. A record changes the slice of its own time at
every level, however late it comes, until that slice has expired. Expired slices leave the store as
ranges of it. That is not part of a commit: expired slices are never read, so their presence has no
effect, neither here nor in a store that a next owner restores from a snapshot and the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millwheel.adapters.ports import StateStore, StoreView
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.forms.slices import SlicePlan
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.formats.store_layout import EXPIRED, SLICE, number8, slice_prefix
from millwheel.core.model.failures import in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.levels import SliceLevel
from millwheel.core.slices.merge_cache import MergedSpans
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.panes import as_retraction
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.queries.slices import SliceAnswers, expired_before, noted_expiry
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.slices.cells import ReadyRecord, SliceCells
from millwheel.engine.workers.operators.slices.columns import ColumnSlices
from millwheel.engine.workers.operators.slices.keys import SliceKeys
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import RecordError

_EXPIRIES = 100
"""Slices expire in steps of this fraction of the time that is kept: each step leaves marks in the
store, which slow reads."""


class Expiry:
    """The expired slices of one shard."""

    def __init__(
        self, spec: SlicesSpec, levels: Sequence[SliceLevel], store: StateStore, overlay: Overlay
    ) -> None:
        self._spec = spec
        self._levels = levels
        self._store = store
        self._overlay = overlay
        self._noted_us = noted_expiry(store.get(EXPIRED))
        self._dropped_us = MIN_TIME
        self._waits = store.first(SLICE, SLICE) is not None
        self._step_us = max(spec.levels_us[0], spec.keep_us // _EXPIRIES)

    def wake(self) -> None:
        """Note that there are slices."""
        self._waits = True

    def due_at(self) -> int:
        """Some slices have expired once the watermark has passed this; MAX_TIME means never."""
        if not self._waits:
            return MAX_TIME
        return min(self._noted_us + self._spec.keep_us + self._step_us, MAX_TIME)

    def before(self, watermark_us: int) -> int:
        """Slices that end at or before this have expired."""
        return expired_before(self._spec, watermark_us, noted_expiry(self._overlay.get(EXPIRED)))

    def before_noted(self, watermark_us: int) -> int:
        """:meth:`before`, between two bundles: without a look into the store."""
        return expired_before(self._spec, watermark_us, self._noted_us)

    def note(self, watermark_us: int) -> None:
        """Note, with the commit of this bundle, up to where slices have expired."""
        # at the end of input, nothing more expires
        self._waits = self._waits and watermark_us != MAX_TIME
        before = expired_before(self._spec, watermark_us, MIN_TIME)
        if before >= self._noted_us + self._step_us:
            self._noted_us = before
            self._overlay.put(EXPIRED, number8(before))

    def drop(self) -> None:
        """Delete what expired with an earlier commit.

        Not with the commit that notes it: a checkpoint between the two would lack slices that its
        own watermark still keeps, and its next owner would count late records into what is left of
        them."""
        expired_us = noted_expiry(self._store.get(EXPIRED))
        if expired_us <= self._dropped_us:
            return
        for level in self._levels:
            until_us = level.bounds(expired_us)[0]
            self._store.delete_range(
                slice_prefix(level.number, MIN_TIME), slice_prefix(level.number, until_us)
            )
        self._dropped_us = expired_us


class SlicesOperator(Operator):
    """The operator of a computation with ``slices``."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        store: StateStore,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
        plan: ColumnPlan | None = None,
        few: int = 0,
    ) -> None:
        slices = spec.work_as(SlicesSpec)
        self._spec = spec
        self._pipeline = pipeline.name
        self._decode = decode
        self._answers = SliceAnswers.of(slices, aggregation_of(spec, pipeline), MergedSpans())
        self._levels = self._answers.levels
        self._takes_back = takes_retractions(spec, pipeline)
        self._cells = SliceCells(overlay, self._answers, cache_entries, pipeline.limits.state)
        self._keys = SliceKeys.of(self._answers, overlay) if slices.ttl_us is not None else None
        self._columns = (
            ColumnSlices(spec.name, plan, self._answers, self._cells, few)
            if isinstance(plan, SlicePlan)
            else None
        )
        self._expiry = Expiry(slices, self._levels, store, overlay)

    @property
    def emits_late(self) -> bool:
        return bool(self._spec.late_side)

    def due_at(self) -> int:
        at_us = self._expiry.due_at()
        return at_us if self._keys is None or at_us == MAX_TIME else min(at_us, self._keys.due_at())

    def run(self, bundle: Bundle) -> None:
        self._expiry.drop()
        self._expiry.note(bundle.watermark)
        if self._keys is not None:
            self._dropped(self._keys.clear(bundle.watermark))
        self._take(bundle)
        self._cells.trim()

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        return self._answers.answer_after(
            self._expiry.before_noted(watermark_us), query, state, watermark_us
        )

    def answer_committed(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        # Merged spans are neither used nor kept: the step has already named the keys that it
        # changes.
        return replace(self._answers, merged=None).answer(query, state, watermark_us)

    # --- records ----------------------------------------------------------------------------------

    def _take(self, bundle: Bundle) -> None:
        expired_us = self._expiry.before(bundle.watermark)
        outcome = None if self._columns is None else self._columns.take(bundle, expired_us)
        if outcome is None:
            self._take_rows(bundle, expired_us)
            return
        if outcome.changed:
            self._expiry.wake()
        if outcome.expired is not None:
            bundle.arrivals = [replace(bundle.arrivals[0], batch=outcome.expired)]
            self._take_rows(bundle, expired_us)

    def _take_rows(self, bundle: Bundle, expired_us: int) -> None:
        """Sort the arrivals by key, drop records that are too late, and add the rest slice by
        slice."""
        by_key: dict[Key, list[ReadyRecord]] = {}
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            values = self._decode(batch.stream, batch.values)
            for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
                ready = self._prepared(key, value, timestamp, batch.stream, bundle)
                if ready is None:
                    continue
                if is_complete(ready.start_end[1], expired_us):
                    self._late(ready, bundle)
                else:
                    by_key.setdefault(key, []).append(ready)
        if by_key:
            self._expiry.wake()
        for key, records in by_key.items():
            self._add(key, records, bundle)

    def _prepared(
        self, key: Key, value: Any, timestamp: int, stream: str, bundle: Bundle
    ) -> ReadyRecord | None:
        back = as_retraction(value) if self._takes_back else None
        try:
            prepared = self._answers.aggregation.prepare(value if back is None else back.value)
            bounds = self._levels[0].bounds(timestamp)
        except RecordError as ex:
            who = f" (aggregate {ex.aggregate!r} of stream {stream!r})" if ex.aggregate else ""
            self._letter(
                bundle,
                ReadyRecord(key, value, timestamp, stream, None, (0, 0), False),
                str(ex) + who,
            )
            return None
        if prepared is FILTERED:
            return None
        return ReadyRecord(key, value, timestamp, stream, prepared, bounds, back is not None)

    def _dropped(self, cell_keys: Sequence[bytes]) -> None:
        """Forget the slices of idle keys, which have left the store."""
        self._cells.forget(cell_keys)
        if cell_keys and self._answers.merged:
            self._answers.merged.clear()

    def _add(self, key: Key, records: list[ReadyRecord], bundle: Bundle) -> None:
        if self._keys is not None:
            admitted = self._keys.admit(
                key, [record.timestamp for record in records], bundle.watermark
            )
            self._dropped(admitted.gone)
            for index in admitted.late:
                self._late(records[index], bundle)
            records = [records[index] for index in admitted.indexes]
        slices: dict[int, list[ReadyRecord]] = {}
        for record in records:
            slices.setdefault(record.start_end[0], []).append(record)
        for some in slices.values():
            try:
                self._cells.add(key, some)
            except BaseException as ex:  # the user's aggregator, on one of them: find it
                if passes(ex):
                    raise
                self._add_one_by_one(key, some, bundle)

    def _add_one_by_one(self, key: Key, records: Sequence[ReadyRecord], bundle: Bundle) -> None:
        for record in records:
            try:
                self._cells.add(key, [record])
            except BaseException as ex:
                if passes(ex):
                    raise
                self._letter(bundle, record, f"aggregation failed: {in_words(ex)}")

    def _late(self, record: ReadyRecord, bundle: Bundle) -> None:
        bundle.count("late")
        if side := self._spec.late_side:
            bundle.outputs.produce(
                side, record.key, record.value, max(record.timestamp, bundle.passed)
            )

    def _letter(self, bundle: Bundle, record: ReadyRecord, reason: str) -> None:
        letter = DeadLetter(
            self._pipeline,
            self._spec.name,
            record.stream,
            reason,
            record.key,
            record.value,
            record.timestamp,
        )
        bundle.dead_letter(letter, max(record.timestamp, bundle.floor))


def aggregation_of(spec: ComputationSpec, pipeline: PipelineSpec) -> Aggregation:
    """The aggregation that each slice holds."""
    load: Callable[[str], Any] = lambda name: load_object(name, pipeline.folder)  # noqa: E731
    back = takes_retractions(spec, pipeline)
    return compile_aggregation(
        spec.aggregates, language_of(pipeline).compile, load, spec.condition, spec.stage, back
    )
