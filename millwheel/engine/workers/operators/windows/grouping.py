"""Runs a declarative aggregation whose windows may fire several times: bundles in columns are
grouped at once.

The state of each key and window is that of the row form, touched once for all records of a bundle;
triggers, panes and retractions are the window machine's. A bundle with anything that needs a look
at one record goes by rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch, joined
from millwheel.core.columns.groups_frame import END
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.lazy_polars import pl
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.machines.counts import CountMachine
from millwheel.core.model.keys import Key
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import Times
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.state import CLOSED, as_state
from millwheel.core.windows.windows import Count, Forever
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.state.overlay import Overlay


class GroupedOperator(WindowedOperator):
    """A :class:`WindowedOperator` that takes whole bundles where it can."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        plan: ColumnPlan | PlansByType,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
        few: int = 0,
    ) -> None:
        super().__init__(spec, pipeline, overlay, decode, cache_entries)
        self._few = few
        self._plan_of = plan.of if isinstance(plan, PlansByType) else lambda batch: plan
        if isinstance(plan, ColumnPlan):
            self.outputs.finish_row = plan.typed
        self.bundles_grouped = 0
        self._boundary = ColumnBoundary(spec.name)

    def _take(self, bundle: Bundle, times: Times) -> None:
        batch = columns_of(bundle, self._few)
        late, groups = None, None
        try:
            with self._boundary.inside(bundle.count):
                plan = self._plan_of(batch) if batch is not None else None
                if batch is not None and plan is not None:
                    late = plan.late(batch, bundle.watermark)
                    groups = self._grouped(
                        plan, batch if late is None else batch.where(~late), bundle.watermark
                    )
        except Inexact:
            groups = None
        if batch is None or groups is None:
            super()._take(bundle, times)
            return
        self.bundles_grouped += 1
        self.take_groups(groups, bundle)
        if late is not None:
            # The machine decides about late records one by one. As a group they would get into a
            # window that is over. All records of one window take the same path, so that its trigger
            # is evaluated once per bundle.
            bundle.arrivals = [replace(bundle.arrivals[0], batch=batch.where(late))]
            super()._take(bundle, times)

    def _grouped(
        self, plan: ColumnPlan, batch: ColumnBatch, watermark: int
    ) -> list[tuple[Key, Group]] | None:
        """The groups of a batch; None when it must be looked at record by record. Raises
        Inexact."""
        groups = plan.group(batch, self._filled)
        timed = not isinstance(plan.window, Count | Forever)
        if (
            timed
            and groups.height
            and is_complete(groups.select(pl.col(END).min()).item(), watermark)
        ):
            return None
        row_groups = list(plan.row_groups_of(groups, batch))
        machine = self._machine
        if isinstance(machine, ChangeLogMachine):
            apart = any(
                machine.spans_lives(self._cells.of(key), group) for key, group in row_groups
            )
            return None if apart else row_groups
        if not isinstance(self._machine, AlignedMachine):
            return row_groups  # a closed one is gone
        return None if any(self._closed(key, group) for key, group in row_groups) else row_groups

    def _filled(self, keys: Sequence[Key]) -> list[int]:
        """The number of records in the count window of each key."""
        machine = self._machine
        assert isinstance(machine, CountMachine)
        return [machine.filled(self._cells.of(key)) for key in keys]

    def _closed(self, key: Key, group: Group) -> bool:
        own = as_state(self._cells.load(key, group.window))
        return own is not None and bool(own.flags & CLOSED)


def columns_of(bundle: Bundle, few: int) -> ColumnBatch | None:
    """The records of a bundle; None when one has to be looked at by itself, and where they are
    fewer than ``few``."""
    batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
    columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
    if not columns or len(columns) < len(batches) or sum(map(len, columns)) < few:
        return None
    # Where no types are declared, two partitions may have fields of one name and two types.
    same = all(_types(each) == _types(columns[0]) for each in columns[1:])
    return joined(columns) if same else None


def _types(batch: ColumnBatch) -> tuple[object, object]:
    return batch.frame.schema, batch.keys.dtype
