"""The windows of an aggregation in columns: the columnar segments of a shard, by the types of their
fields, with the plan of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import Types
from millwheel.core.columns.state.late_windows import KeptColumns
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.state.sessions import SessionColumns
from millwheel.core.columns.state.steps import StepColumns
from millwheel.core.columns.state.windows import ColumnWindows, results_of, windows_of_key
from millwheel.core.formats.store_layout import WINDOW, key_in, slot_of
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MIN_TIME, held_at
from millwheel.core.pipeline.skew import slots_of_keys
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.windows import Sessions, Window
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.operators.windows.row_keys import MOST_KEYS, KeysInRows
from millwheel.engine.workers.operators.windows.table import WindowTable
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    numbered_segments,
    open_groups,
    restore_segment,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError, invariant


class _NoTypes:
    """The plan of windows without types: there are none to be merged."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        raise InvariantError("there are windows, but no types of their fields")


class SegmentTable(WindowTable):
    """The ``windows`` of the plan that is in use (``current_plan``: None until types are met), and
    the ``others``, of other types, which a merge of shards has brought. ``by_type`` has the
    plans where no types are declared."""

    def __init__(
        self, spec: ComputationSpec, plan: ColumnPlan | PlansByType, shard: ColumnShard
    ) -> None:
        self._spec = spec
        self._shard = shard
        self._slots = slots_of_keys(spec)
        self._open_until = MIN_TIME
        self.by_type = plan if isinstance(plan, PlansByType) else None
        self.current_plan = None if isinstance(plan, PlansByType) else plan
        self.windows, *self.others = self._restored(plan)
        if isinstance(plan, PlansByType) and self.windows:
            self.current_plan = plan.plan(dict(self.windows.types))

    @property
    def plan(self) -> ColumnPlan:
        """The plan that is in use."""
        return self._required(self.current_plan, "no types yet")

    def plan_of(self, windows: ColumnWindows) -> ColumnPlan:
        """The plan of some windows."""
        return self.plan_of_types(windows.types)

    def plan_of_types(self, types: Types) -> ColumnPlan:
        """The plan of windows, or groups, of these types."""
        if self.by_type is None:
            return self.plan
        return self._required(
            self.by_type.plan(dict(types)), f"windows of types that have no plan, {types}"
        )

    def _required(self, plan: ColumnPlan | None, what: str) -> ColumnPlan:
        invariant(plan is not None, f"{self._spec.name} has met {what}")
        assert plan is not None
        return plan

    def all(self) -> list[ColumnWindows]:
        """All windows."""
        return [self.windows, *self.others]

    def write(self, overlay: Overlay) -> None:
        """Write the changes of a bundle to the store."""
        for windows in self.all():
            write_segments(windows, self._shard.name, overlay, self._slots)
        self.others = [windows for windows in self.others if windows]

    def due_at(self) -> int:
        return min(windows.due_at() for windows in self.all())

    def hold(self, now_us: int) -> Hold:
        fires_at = min(windows.fires_at() for windows in self.all())
        return Hold(held_at(fires_at), "window (in columns), which outputs as it closes")

    def validate(self, state: StoreView) -> None:
        validate_segments(self.all(), self._shard.name, state)

    # --- questions --------------------------------------------------------------------------------

    def open_windows(self, key: Key) -> list[Window]:
        held = [(windows, self.plan_of(windows)) for windows in self.all() if windows]
        return [
            window for windows, plan in held for window in windows.open_windows(plan.of_key(key))
        ]

    def results(self, key: Key, aggregation: Aggregation, closed: int) -> list[tuple[Window, Any]]:
        """The windows of a key, and their results. Those up to ``closed`` have fired."""
        results = []
        for windows in filter(None, self.all()):
            plan = self.plan_of(windows)
            results += results_of(plan, windows.of_key(plan, key), aggregation, closed)
        return results

    def stored_results(
        self, state: StoreView, key: Key, aggregation: Aggregation, closed: int
    ) -> list[tuple[Window, Any]]:
        """The same as the store has them."""
        results = []
        for types, groups in open_groups(state, closed).items():
            plan = self.plan_of_types(types)
            results += results_of(plan, windows_of_key(plan, groups, key), aggregation, closed)
        return results

    # --- the store --------------------------------------------------------------------------------

    def _restored(self, plan: ColumnPlan | PlansByType) -> list[ColumnWindows]:
        """The open windows as the store has them: those of the plan first, then those of other
        types."""
        if isinstance(plan, ColumnPlan):
            windows = windows_of(plan, self._shard.closed)
            restore_segments(windows, self._shard)
            return [windows]
        by_types: dict[Types, ColumnWindows] = {}
        for number, segment in numbered_segments(self._shard):
            own_plan = plan.plan(dict(segment.types))
            invariant(
                own_plan is not None,
                f"{self._spec.name}: no plan for the types of its windows, {segment.types}",
            )
            assert own_plan is not None
            windows = by_types.setdefault(segment.types, windows_of(own_plan, self._shard.closed))
            restore_segment(windows, number, segment, self._shard.closed)
        beyond = max((windows.next_number for windows in by_types.values()), default=0)
        for number, windows in enumerate(by_types.values()):
            windows.number_from(beyond + number, len(by_types))
        # Those of which all have closed come last: their rest in the store is removed with the
        # others.
        if by_types:
            return sorted(by_types.values(), key=lambda windows: not windows)
        lateness_us = self._spec.firing.allowed_lateness_us
        empty = (
            KeptColumns(_NoTypes(), lateness_us, self._shard.closed)
            if lateness_us
            else ColumnWindows(_NoTypes())
        )
        return [empty]

    def keys_apart(self) -> KeysInRows:
        """The keys of the windows in rows, beside those of others in columns; none where they are
        too many to be remembered."""
        keys = KeysInRows()
        if self.windows and not self.others and self.by_type is None:
            stored = self._shard.store.scan(WINDOW)
            keys.add([key_in(store_key) for store_key, _ in islice(stored, MOST_KEYS + 1)])
        return keys if len(keys) <= MOST_KEYS else KeysInRows()

    def has_rows(self, watermark: int) -> bool:
        """Whether rows have a window that is to fire. Where windows stay afterwards, those of late
        records are there at all times, and change nothing."""
        if watermark < self._open_until:
            return True
        for store_key, _ in self._shard.store.scan(WINDOW):
            slot = slot_of(store_key) if self._spec.firing.allowed_lateness_us else None
            if not isinstance(slot, list):
                return True
            if not is_complete(slot[1], watermark):
                self._open_until = slot[1]  # not looked at again before
                return True
        return False


def windows_of(plan: ColumnPlan, closed: int) -> ColumnWindows:
    """The windows of a shard of which those up to ``closed`` have fired."""
    if plan.steps is not None:
        return StepColumns(plan, plan.steps, closed)
    if isinstance(plan.window, Sessions):
        return SessionColumns(plan)
    if plan.lateness_us:
        return KeptColumns(plan, plan.lateness_us, closed, plan.inferred)
    return ColumnWindows(plan, plan.inferred)
