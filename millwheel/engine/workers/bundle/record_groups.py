"""The records of a bundle for windows in columns: groups, and reports about the records that no
window takes.

Reports are made only once the whole bundle fits into columns. Otherwise the bundle goes by rows,
which report the same records again. A bundle of few records is grouped in a loop, whichever form it
comes in: see core/columns/few_groups.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from millwheel.core.aggregates.aggregation import FILTERED, Aggregation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.changes import are_retractions
from millwheel.core.columns.few_groups import Groups, RowForm
from millwheel.core.columns.groups_frame import END
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Batch
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import RejectedRecord, rejected
from millwheel.core.windows.lateness import is_complete, open_windows, still_open
from millwheel.core.windows.panes import as_retraction
from millwheel.core.windows.windows import Forever, OfInput, Sessions, Window
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.row_groups import Decode
from millwheel.errors import RecordError

Reports = list[Callable[[], None]]
Refuse = Callable[[RejectedRecord, None, Bundle], None]
"""Sends a record that the aggregation cannot use to the dead letters."""


class HoldsGroups(Protocol):
    """The holder of the groups: windows, or the groups of a change log."""

    @property
    def example(self) -> pl.DataFrame | None:
        """Some groups, of which all others have the types; None for none, or where types may
        differ."""

    def late_until(self, watermark: int) -> int:
        """Records are late whose group ends at this time or before."""

    def entering(self, groups: Groups, watermark: int) -> Groups:
        """The groups of a bundle in time, as they are held. Raises Inexact."""


class _Prepared:
    """The records of a key and window, and those that are taken back (``gone``)."""

    __slots__ = ("gone", "ready", "stamps")

    def __init__(self) -> None:
        self.ready: list[Any] = []
        self.stamps: list[int] = []
        self.gone: list[tuple[Any, int]] = []

    def add(self, ready: Any, timestamp: int, back: bool) -> None:
        """Add a record."""
        if back:
            self.gone.append((ready, timestamp))
        else:
            self.ready.append(ready)
            self.stamps.append(timestamp)

    def acc(self, aggregation: Aggregation) -> Any:
        """Their accumulator."""
        acc = aggregation.add_many(aggregation.create(), self.ready, self.stamps)
        for ready, timestamp in self.gone:
            acc = aggregation.subtract(acc, ready, timestamp)
        return acc


def _mixed(batch: ColumnBatch, plan: ColumnPlan) -> bool:
    """Whether each record has to be checked for taking another back."""
    return plan.takes_back and are_retractions(batch) is None


class RecordGroups:
    """The grouping of the records of one aggregation. Records that are in no window are counted,
    and nothing else, if it ``drops`` them. Bundles of fewer than ``few`` records are grouped in
    rows."""

    def __init__(
        self, aggregation: Aggregation, refuse: Refuse, decode: Decode, drops: bool, few: int
    ) -> None:
        self._aggregation = aggregation
        self._few = few
        self._form: RowForm | None = None
        self._refuse = refuse
        self._decode = decode
        self._drops = drops

    def of(
        self,
        batch: AnyBatch,
        plan: ColumnPlan,
        held: HoldsGroups,
        bundle: Bundle,
        reports: Reports,
    ) -> list[Groups]:
        """The groups of a batch, without those of windows that take no records any more.
        ``reports`` gets calls that report the records that are in none. Raises Inexact, and the
        errors of the aggregation for a record."""
        late_until = held.late_until(bundle.watermark)
        parts: list[Groups] = []
        rows: AnyBatch | None = batch
        if len(batch) < self._few and not plan.inferred:
            groups = self._of_rows(batch.rows(), plan, late_until, bundle, reports)
            few = self._form_of(plan).groups(groups)
            return [
                held.entering(
                    plan.from_row_groups(groups) if few is None else few, bundle.watermark
                )
            ]
        if isinstance(batch, ColumnBatch) and not _mixed(batch, plan):
            # Sources have looked at each record. The results of a computation may be null, or of
            # another type.
            clean, rows = plan.divide(batch)
            parts.append(self._of_columns(clean, plan, late_until, bundle, reports))
        if rows is not None:
            # accumulators do not have the types of undeclared fields
            if plan.inferred:
                raise Inexact
            of_rows = self._of_rows(rows.rows(), plan, late_until, bundle, reports)
            parts.append(plan.from_row_groups(of_rows, held.example))
        return [held.entering(groups, bundle.watermark) for groups in parts]

    def _form_of(self, plan: ColumnPlan) -> RowForm:
        if self._form is None or self._form.plan is not plan:
            self._form = RowForm(plan, self._aggregation)
        return self._form

    def _of_columns(
        self,
        batch: ColumnBatch,
        plan: ColumnPlan,
        late_until: int,
        bundle: Bundle,
        reports: Reports,
    ) -> pl.DataFrame:
        pass_on = partial(self._too_late, like=bundle.arrivals[0], bundle=bundle)
        if isinstance(plan.window, Sessions) and (late := plan.late(batch, late_until)) is not None:
            # First, since they would join sessions of the bundle.
            reports.append(partial(pass_on, batch.where(plan.too_late(batch, late_until))))
            batch = batch.where(~late)
        groups = plan.group(batch)
        if groups.height and is_complete(groups[END].min(), late_until):  # type: ignore[arg-type]
            reports.append(partial(pass_on, batch.where(plan.too_late(batch, late_until))))
            # These windows have fired and are forgotten. Added again they would fire a second time,
            # with the late records alone.
            groups = groups.filter(still_open(pl.col(END), late_until))
        return groups

    def _of_rows(
        self, batch: Batch, plan: ColumnPlan, late_until: int, bundle: Bundle, reports: Reports
    ) -> list[tuple[Key, Group]]:
        """The groups of records that come as rows: their input had values that columns cannot
        express."""
        prepared: dict[tuple[Key, Window], _Prepared] = {}
        late = Batch(batch.stream, [], [], [], [])
        values = self._decode(batch.stream, batch.values)
        for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
            back = as_retraction(value) if plan.takes_back else None
            value = value if back is None else back.value
            try:
                ready = self._aggregation.prepare(value)
                if ready is FILTERED:
                    continue
                windows = (
                    [plan.window.window_of(value)]
                    if isinstance(plan.window, OfInput)
                    else plan.window.assign(timestamp)
                )
            except RecordError as ex:
                reports.append(
                    partial(self._refuse, rejected(key, value, timestamp, ex), None, bundle)
                )
                continue
            windows = open_windows(windows, late_until)
            for window in windows:
                prepared.setdefault((key, window), _Prepared()).add(
                    ready, timestamp, back is not None
                )
            if not windows:
                late.keys.append(key)
                late.timestamps.append(timestamp)
                late.values.append(value)
        if len(late):
            reports.append(partial(self._too_late, late, bundle.arrivals[0], bundle))
        groups = []
        for (key, window), cell in prepared.items():
            if isinstance(plan.window, Forever):
                stamps = [*cell.stamps, *(timestamp for _, timestamp in cell.gone)]
                window = Window(min(stamps), max(stamps) + 1)
            count = len(cell.ready) - len(cell.gone)
            groups.append((key, Group(window, cell.acc(self._aggregation), count, None, None)))
        return groups

    def _too_late(self, batch: AnyBatch, like: Arrival, bundle: Bundle) -> None:
        """Count records that no window takes any more. If they are not dropped they stay in the
        bundle, for the row form."""
        if self._drops:
            bundle.count("late", len(batch))
        else:
            bundle.arrivals.append(replace(like, batch=batch))
