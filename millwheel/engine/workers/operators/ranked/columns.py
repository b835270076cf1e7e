"""Runs ``top`` and ``deduplicate`` with ``keep`` on whole bundles: columns choose the records of a
key that may be among the first, and only they become rows.

State and results are those of the row form (top.py), which has the last word. A bundle with
anything that needs a look at one record goes by rows.
"""

from __future__ import annotations

from typing import Any

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.callbacks import Together
from millwheel.engine.workers.operators.grouped import columns_of
from millwheel.engine.workers.operators.ranked.top import FirstRows


class FirstRowsOperator(BatchOperator):
    """See the head of this file."""

    def __init__(self, plan: ColumnPlan, few: int, *arguments: Any) -> None:
        """Bundles of fewer than ``few`` records go by rows."""
        super().__init__(*arguments)
        assert isinstance(self._instance, FirstRows)
        self._rows: FirstRows = self._instance
        self._plan = plan
        self._few = few
        self._boundary = ColumnBoundary(arguments[0].name)
        self.bundles_grouped = 0

    def _run_records(self, bundle: Bundle) -> None:
        groups = self._groups(bundle)
        if groups is None:
            super()._run_records(bundle)
            return
        self.bundles_grouped += 1
        self._state.read_ahead([key for key, _ in groups])
        self._at = at = Together()
        for key, group in groups:
            at.key = key
            self._take(key, group)
            if self._state.unsettled:
                self._settle(bundle, self._fire_one)

    def _groups(self, bundle: Bundle) -> list[tuple[Key, Group]] | None:
        """What may be among the first; None where a record has to be looked at by itself."""
        traced = bundle.traced is not None and bool(bundle.traced.records)
        if traced or self._attempts.avoided.apart:
            return None
        if any(is_behind(arrival.batch.earliest, bundle.watermark) for arrival in bundle.arrivals):
            return None
        batch = columns_of(bundle, self._few)
        if batch is None:
            return None
        try:
            with self._boundary.inside(bundle.count):
                return list(self._plan.row_groups(self._plan.group(batch), batch))
        except Unfit:
            return None

    def _take(self, key: Key, group: Group) -> None:
        earliest, latest, context = group.earliest, group.latest, self._context
        assert earliest is not None
        assert latest is not None
        context.point(key, earliest)
        context.together = True
        self._rows.process_entries(context, group.acc[0], earliest, latest)
        context.together = False
