"""Runs a change log on columns: the groups of a shard are in columnar segments, a bundle is merged
with the groups of its keys in one operation, and their new versions leave as columns, behind those
that they take back.

Every key is either in columns or in rows. Few records are as quick in rows, so a shard takes whole
bundles from the first that is worth it. Beyond ``_MOST_BYTES`` the keys without a new record for
the longest time go on in rows, and so do all where only small bundles come: some keys in each
bundle (:mod:`millwheel.core.columns.state.columns_to_rows`). While there is room, the keys of a
bundle come back. A key of which columns cannot hold a record stays in rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import (
    AnyBatch,
    ColumnBatch,
    Int64s,
    frame_bytes,
    frame_from,
    joined,
    key_list,
)
from millwheel.core.columns.changes import retractions_of
from millwheel.core.columns.few_groups import frame_of
from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.change_logs import (
    FleetingGroups,
    LastingGroups,
    accumulators_of,
    there,
)
from millwheel.core.columns.state.columns_to_rows import (
    Left,
    encoded_keys,
    is_among,
    keys_of,
    where,
)
from millwheel.core.columns.state.growing_groups import GrowingGroups
from millwheel.core.columns.stateless.results import ResultColumns
from millwheel.core.expressions.language import Language
from millwheel.core.formats.store_layout import WINDOW, key_in, pack
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.skew import slots_of_keys
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import Times
from millwheel.core.windows.panes import Accumulation, Timing, pane_of
from millwheel.core.windows.state import as_state, tag_of
from millwheel.core.windows.windows import GLOBAL_WINDOW, Forever, Window
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.record_groups import RecordGroups, Reports
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.key_forms import FormChoice
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.row_keys import MOST_KEYS, odd_groups, odd_keys
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.errors import invariant

_MOST_BYTES = 32 << 20
"""Bytes of the groups of a shard; once there are more, half of them go by rows."""
_TRIES = 3
"""Rounds in which keys are set apart: columns may be unable to hold some, and to take others in a
bundle."""
Mask = npt.NDArray[np.bool_]


class ChangeLogOperator(GroupedOperator):
    """A :class:`GroupedOperator` whose groups columns hold where they can."""

    def __init__(
        self, shard: ColumnShard, language: Language, spec: ComputationSpec, *arguments: Any
    ) -> None:
        super().__init__(spec, *arguments)
        _, plan, _, decode, *_ = arguments
        assert isinstance(plan, ColumnPlan)
        self._plan = plan
        if plan.takes_back:
            self._plan_of = lambda batch: None  # groups of rows are put together one by one
        self._takes_back = spec.firing.accumulation == Accumulation.RETRACTING.value
        self._shard = shard
        self._slots = slots_of_keys(spec)
        self._aggregation = compile_aggregation(
            spec.aggregates,
            language.compile,
            condition=spec.condition,
            stage=spec.stage,
            takes_retractions=plan.takes_back,
        )
        self._records = RecordGroups(self._aggregation, self.outputs.refuse, decode, True, 0)
        self._shown_columns = ResultColumns(spec, language.compile)
        self._groups = _groups_of(plan)
        self._watermark = MIN_TIME
        self._form = FormChoice(self._groups, self._few, _MOST_BYTES, self._has_rows)
        self._odd: set[Key] = set()
        self._spanning: set[Key] = set()
        """Keys that columns cannot take in this bundle, since a group may end within it."""
        named = dict(zip(plan.aggregates, plan.names, strict=True))
        self._counted = {named[each]: each.counted for each in plan.counting}
        restore_segments(self._groups, shard)
        self._of_others = plan.whole and len(self._groups.by_type()) > 1
        """The segments are of shards with records of different types."""

    def validate(self, state: StoreView) -> None:
        super().validate(state)
        validate_segments([self._groups], self._shard.name, state)
        keys = [key for each in self._groups.segments() for key in key_list(each.groups[KEY])]
        twice = self._cells.among(list(dict.fromkeys(keys)), GLOBAL_WINDOW)
        invariant(not twice, f"{self._shard.name} has {twice} in columns and in rows")

    def kept(self) -> Counter[tuple[Key, int, int | None, bytes]]:
        """Each key, its number of records, its newest time and its encoded result. They are the
        same in either form. For tests, between bundles."""
        kept: Counter[tuple[Key, int, int | None, bytes]] = Counter()
        for alike in self._groups.by_type():
            for key, group in self._plan.row_groups(self._groups.together(alike)):
                kept[key, group.count, group.latest, self._encoded_result(group.acc)] += 1
        for key in [key_in(entry) for entry, _ in self._shard.store.scan(WINDOW)]:
            own = as_state(self._cells.load(key, GLOBAL_WINDOW))
            assert own is not None
            kept[key, own.count, own.output_at_us, self._encoded_result(own.acc)] += 1
        return kept

    def _encoded_result(self, acc: Any) -> bytes:
        return pack(self.outputs.finish_row(dict(self._aggregation.result(acc))))

    def open_windows(self, key: Key) -> list[Window]:
        held = [GLOBAL_WINDOW] if self._held_of(key, self._watermark) else []
        return held or super().open_windows(key)

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        held = self._held_of(query.key, watermark_us)
        return self.answer_with(query, held, state, watermark_us)

    def due_at(self) -> int:
        return min(super().due_at(), self._groups.due_at())

    def _held_of(self, key: Key, watermark: int) -> list[tuple[Window, Any]]:
        """The result of a key that columns hold."""
        segments = [segment.groups for segment in self._groups.segments()]
        groups = accumulators_of(self._plan, segments, key, watermark)
        return [(GLOBAL_WINDOW, self._aggregation.result(acc)) for acc in groups]

    # --- a bundle ---------------------------------------------------------------------------------

    def _take(self, bundle: Bundle, times: Times) -> None:
        count = sum(len(arrival.batch) for arrival in bundle.arrivals)
        self._watermark = bundle.watermark
        self._groups.forget(bundle.watermark)
        if self._of_others:
            for alike in self._groups.by_type():
                self._hand_over([Left(groups, MIN_TIME) for groups in alike], bundle)
            self._groups.clear()
            self._of_others = False
        self._form.choose(count)
        if count and (self._groups or not self._form.in_rows):
            bundle.arrivals = self._take_in_columns(bundle)
        super()._take(bundle, times)
        self._form.took_in_rows(bundle.arrivals)
        for segments in self._form.leave(count):
            self._hand_over(segments, bundle)
        write_segments(self._groups, self._shard.name, bundle.overlay, self._slots)

    def _take_in_columns(self, bundle: Bundle) -> list[Arrival]:
        """Take the records of a bundle whose keys are, or go, in columns. The others are left."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        chosen = self._chosen(batches)
        for _ in range(_TRIES):
            if self._grouped_and_emitted(bundle, chosen):
                break
            odd = self._spanning or self._odd_of(batches, chosen)
            if not odd:
                return self._all_set_apart(batches, bundle)
            self._set_apart(odd, bundle)
            columns = [encoded_keys(odd)]
            chosen = [
                mask & ~is_among(keys_of(batch), columns)
                for batch, mask in zip(batches, chosen, strict=True)
            ]
        else:
            return self._all_set_apart(batches, bundle)
        return [
            replace(arrival, batch=where(arrival.batch, ~mask))
            for arrival, mask in zip(bundle.arrivals, chosen, strict=True)
            if not mask.all()
        ]

    def _odd_of(self, batches: Sequence[AnyBatch], chosen: Sequence[Mask]) -> set[Key]:
        """The keys of records that columns cannot hold, of those for which a mask is true."""
        pairs = zip(batches, chosen, strict=True)
        some = [odd_keys(where(batch, mask), self._plan) for batch, mask in pairs if mask.any()]
        return set().union(*some)

    def _all_set_apart(self, batches: Sequence[AnyBatch], bundle: Bundle) -> list[Arrival]:
        self._set_apart({key for batch in batches for key in _keys(batch)}, bundle)
        return bundle.arrivals

    def _chosen(self, batches: Sequence[AnyBatch]) -> list[Mask]:
        """Which records of each batch have a key that is, or goes, in columns."""
        if self._form.in_rows:
            return self._form.leaving.stays(batches)
        if not self._form.some_in_rows:
            return [np.ones(len(batch), np.bool_) for batch in batches]
        keys = list(dict.fromkeys(key for batch in batches for key in _keys(batch)))
        in_rows = set(self._cells.among(keys, GLOBAL_WINDOW))
        if self._form.room:
            fitting = in_rows - self._odd
            in_rows -= self._taken_back([key for key in keys if key in fitting])
        columns = [encoded_keys(in_rows)]
        return [~is_among(keys_of(batch), columns) for batch in batches]

    def _grouped_and_emitted(self, bundle: Bundle, chosen: Sequence[Mask]) -> bool:
        """Take records for which a mask is true, and emit the new versions of their keys. False
        where columns cannot hold all of them: then nothing has been done."""
        reports: Reports = []
        self._spanning = set()
        pairs = zip(bundle.arrivals, chosen, strict=True)
        batches = _together([where(each.batch, mask) for each, mask in pairs if mask.any()])
        if not batches:
            return True
        try:
            with self._boundary.inside(bundle.count):
                parts = [
                    groups
                    for batch in batches
                    for groups in self._records.of(batch, self._plan, self._groups, bundle, reports)
                    if groups.height
                ]
                frames = [frame_of(groups) for groups in parts]
                new = self._plan.merge(frames) if len(frames) > 1 else next(iter(frames), None)
                old = None if new is None else self._groups.of_keys(new[KEY])
                if new is not None:
                    old, spanning = self._groups.going_on(old, new)
                    self._spanning = {*spanning}
                if self._spanning:
                    return False
                if new is not None and old is not None:
                    new = self._plan.merge([old.select(new.columns), new])
                if new is not None and self._plan.whole:
                    new = self._of_one_type(new)
        except Inexact:
            return False
        for report in reports:
            report()
        if new is not None:
            new = self._groups.counted(old, new)
            self._groups.add(new)
            self.bundles_grouped += 1
            self._emit_versions(old, new, bundle)
            if outgrown := self._groups.outgrown(new):
                self._set_apart({*outgrown}, bundle)
        return True

    def _of_one_type(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Groups whose whole records have the type of those that are held, and share no text with
        the other records of the bundle. Raises Inexact."""
        held = self._groups.example
        if held is not None and not self._plan.alike([groups, held]):
            raise Inexact
        return frame_from(frame_bytes(groups))

    # --- versions ---------------------------------------------------------------------------------

    def _emit_versions(self, old: pl.DataFrame | None, new: pl.DataFrame, bundle: Bundle) -> None:
        """Emit the versions of groups, behind those that they take back. A group that has nothing
        any more has none then."""
        back = old if self._takes_back else None
        new = there(new) if self._takes_back else new
        gone: list[ColumnBatch] = []
        try:
            with self._boundary.inside(bundle.count):
                if back is not None:
                    gone, _ = self._shown(back)
                parts, for_rows = self._shown(new)
        except Inexact:
            # Columns leave before rows: none may leave a version that rows have yet to take back.
            if back is not None:
                self._emit_in_rows(back, bundle, True)
            self._emit_in_rows(new, bundle)
            return
        if len(for_rows):
            self._emit_in_rows(new[for_rows], bundle)
        for part in gone:
            bundle.outputs.produce_columns(replace(part, frame=retractions_of(part.frame)))
        for part in parts:
            bundle.outputs.produce_columns(part)

    def _shown(self, groups: pl.DataFrame) -> tuple[list[ColumnBatch], Int64s]:
        """The versions of groups, and which of them become dead letters. Raises Inexact."""
        stamps, none = groups[END].to_numpy() - 1, np.array([], np.int64)
        whole = ColumnBatch("", none, stamps, groups[KEY], self._plan.results(groups))
        return self._shown_columns.shown(whole)

    def _emit_in_rows(self, groups: pl.DataFrame, bundle: Bundle, back: bool = False) -> None:
        """Emit versions that columns cannot hold, for example a sum beyond 64 bits. ``back``: they
        are taken back."""
        counts = {name: groups[column].to_list() for name, column in self._counted.items()}
        for index, (key, group) in enumerate(self._plan.row_groups(groups)):
            at = group.latest
            assert at is not None
            try:
                result = self._aggregation.result(group.acc)
                result |= {name: column[index] for name, column in counts.items()}
            except BaseException as ex:  # this key has no version, the others have
                if passes(ex):
                    raise
                if not back:
                    self.outputs.could_not_fire(bundle, key, tag_of(GLOBAL_WINDOW), at, ex)
                continue
            version = (key, GLOBAL_WINDOW, result, Timing.EARLY)
            self._emit(pane_of(*version, last=False, at=at, retraction=back), None, bundle)

    # --- rows -------------------------------------------------------------------------------------

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keep the groups of these segments in rows."""
        if not segments:
            return
        self._form.some_in_rows = True
        whole = self._groups.together([segment.groups for segment in segments])
        self.take_groups(self._plan.row_groups(whole), bundle, MIN_TIME)

    def _set_apart(self, keys: set[Key], bundle: Bundle) -> None:
        """Move keys that columns cannot hold to rows. They do not come back, except those that
        columns cannot take only in this bundle."""
        self._form.some_in_rows = True
        if len(self._odd) + len(keys) > MOST_KEYS:
            self._odd.clear()  # they would only be tried again
        self._odd |= keys - self._spanning
        self._hand_over(self._form.leaving.taken_out([encoded_keys(keys)]), bundle)

    def _taken_back(self, keys: Sequence[Key]) -> set[Key]:
        """Move keys from rows to columns; returns those that have moved."""
        groups = []
        for key in keys:
            own = as_state(self._cells.load(key, GLOBAL_WINDOW))
            assert own is not None
            at = own.output_at_us
            if at is not None:
                groups.append((key, Group(Window(at, at + 1), own.acc, own.count, at, at)))
        like = self._groups.example
        odd = odd_groups(groups, self._plan, like)
        self._odd |= odd
        groups = [each for each in groups if each[0] not in odd]
        if groups:
            self._groups.add(self._groups.counted(None, self._plan.from_row_groups(groups, like)))
        for key, _ in groups:
            self._cells.save(key, GLOBAL_WINDOW, None)
        return {key for key, _ in groups}

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(WINDOW)), None) is not None


def _groups_of(plan: ColumnPlan) -> LastingGroups:
    if plan.counting:
        return GrowingGroups(plan)
    assert isinstance(plan.window, Forever)
    ttl_us = plan.window.ttl
    return LastingGroups() if ttl_us is None else FleetingGroups(ttl_us)


def _together(batches: Sequence[AnyBatch]) -> list[AnyBatch]:
    """The same records, those in columns of the same types in one batch: no order of theirs shows
    in groups that columns hold."""
    alike: dict[str, list[ColumnBatch]] = {}
    others: list[AnyBatch] = []
    for batch in batches:
        if isinstance(batch, ColumnBatch):
            types = f"{batch.keys.dtype} {batch.frame.schema}"
            alike.setdefault(types, []).append(batch)
        else:
            others.append(batch)
    return [*map(joined, alike.values()), *others]


def _keys(batch: AnyBatch) -> list[Key]:
    """The different keys of a batch."""
    if isinstance(batch, ColumnBatch):
        return key_list(batch.keys.unique(maintain_order=True))
    return list(dict.fromkeys(batch.keys))
