"""Steps and branches with ``order_by``: records wait in columns, and pass as columns in their order
(:mod:`millwheel.core.waiting.segments`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.lazy_polars import pl
from millwheel.core.model.limits import Limits
from millwheel.core.ranked.kept_records import AT, ROW
from millwheel.core.waiting.records import AnyWaitingColumns, KeyTypes, WaitingColumns
from millwheel.core.waiting.segments import WaitingSegments, indexes_in_order
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.callbacks import Together
from millwheel.engine.workers.operators.record_computations import UNMATCHED
from millwheel.engine.workers.operators.waiting.in_columns import WaitingOperator
from millwheel.engine.workers.state.column_segments import ColumnShard


class OrderedOperator(WaitingOperator):
    """See the head of this file."""

    def __init__(
        self,
        plans: StatelessPlans | None,
        limits: Limits,
        shard: ColumnShard,
        few: int,
        *arguments: Any,
    ) -> None:
        """Without ``plans`` all keys are in rows, also those that another version of the pipeline
        had in columns."""
        self._plans = plans
        self.in_columns = plans is not None
        self._columns = AnyWaitingColumns(KeyTypes((), None), {}, limits.state, ROW)
        super().__init__(WaitingSegments, shard, few, *arguments)

    def _row_type(self, stream: str) -> Any:
        return self._waiting.row_type()

    def _holds(self, rows: Any, keys: Any) -> bool:
        return self._plans is not None and self._columns.holds(rows, keys)

    def _columns_for(self, stream: str) -> WaitingColumns | None:
        return None if self._plans is None else self._columns

    def _streams(self) -> Sequence[tuple[str, str]]:
        return [(self._spec.inputs[0].stream, ROW)]

    def _release(self, watermark: int, bundle: Bundle) -> pl.Series:
        avoided = self._attempts.avoided
        if avoided.lone or avoided.hangs or avoided.apart:
            raise Unfit  # each record is looked at
        whole = pl.concat(self._waiting.due(watermark), rechunk=True)
        whole = whole[indexes_in_order(whole)]
        frame, none = whole[ROW].struct.unnest(), np.array([], np.int64)
        stream = self._spec.inputs[0].stream
        batch = ColumnBatch(stream, none, whole[AT].to_numpy(), whole[KEY], frame)
        plan = None if self._plans is None else self._plans.of(batch)
        if plan is None:
            raise Unfit
        # An expression may take for ever on a text. Then the next owner looks at each record.
        self._at = Together()
        self._context.calls += len(batch)
        try:
            passed = plan.passed(batch)
        finally:
            self._at = None
        if not len(passed.unfit):
            for part in passed.parts:
                bundle.outputs.produce_columns(part)
            if passed.unmatched:
                bundle.outputs.counted.append((UNMATCHED, passed.unmatched))
        return whole[KEY][passed.unfit].unique()
