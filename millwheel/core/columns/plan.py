"""How the records of an aggregation become groups in columns: the plan of a computation that can
run on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.candidates import numbered
from millwheel.core.aggregates.columns import ColumnAggregate, Inexact
from millwheel.core.aggregates.families.adding import Unadded, cells
from millwheel.core.aggregates.families.numeric import Additive
from millwheel.core.columns.arrays import (
    Assigned,
    CountedRows,
    Filled,
    assign_array,
    count_windows,
    first_steps,
    none_filled,
    sessions_of,
    stated_array,
)
from millwheel.core.columns.batch import (
    AnyBatch,
    ColumnBatch,
    Int64s,
    key_column,
)
from millwheel.core.columns.changes import are_retractions
from millwheel.core.columns.clean import clean_rows, is_clean
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import (
    COUNT,
    END,
    KEY,
    START,
    by_key,
    by_number,
    by_window,
    key_parts,
)
from millwheel.core.expressions.inner_fields import with_inner_fields
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.pipeline.keys import INSTANCE
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import still_open
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Forever,
    OfInput,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
)
from millwheel.errors import RecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan(GroupsPlan):
    """The parts of an aggregation that are known before the first record arrives: how records
    become groups.

    Records of which the ``condition`` is true count. ``kinds`` are the types of the fields that
    must hold neither nulls (but for ``takes_nulls``) nor NaN nor infinities; ``key_fields`` are the
    fields that the key is read from. ``takes_back``: some of the records take others back.
    ``steps`` are key windows; their records are grouped by ``window``, the steps of the slide.
    Windows stay for ``lateness_us`` after they have fired. ``drops``: late records are counted, and
    nothing else. ``most`` are the most bytes that an accumulator with whole records may take in
    rows.
    """

    condition: pl.Expr | None
    kinds: tuple[tuple[str, str], ...]
    key_fields: tuple[str, ...] = ()
    takes_nulls: bool = False
    takes_back: bool = False
    steps: Sliding | None = None
    lateness_us: int = 0
    drops: bool = True
    most: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that aggregates and conditions read."""
        return tuple(name for name, _ in self.kinds)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The fields of a record that it reads, beside its key."""
        return (*self.needs, RETRACTION_FIELD) if self.takes_back else self.needs

    @property
    def divided(self) -> bool:
        """Whether keys are divided, so that their last part is not a field."""
        return self.key_names[-1] == INSTANCE

    @property
    def combines(self) -> bool:
        """Whether a source may group records before it sends them: a record has one window and
        contains its key, and is not needed again."""
        plain = isinstance(self.window, Tumbling) and self.steps is None
        return self.fires_once and plain and self.drops and not self.divided

    def of_any(self, batch: AnyBatch) -> ColumnPlan | None:
        """The plan for a batch, None when it is in rows."""
        return self if isinstance(batch, ColumnBatch) else None

    def group(self, batch: ColumnBatch, filled: Filled = none_filled) -> pl.DataFrame:
        """The groups of a bundle. Raises Inexact when the columns cannot hold its numbers.
        ``filled`` is for count windows: their groups span the timestamps of the records, and those
        of a key are in order."""
        back = self.takes_back and are_retractions(batch)
        if back is None:
            raise Inexact
        batch = self._opened(batch)
        self._check_kinds(batch)
        # before anything is computed: some expressions fail on values that do not fit
        self.check_exact(batch.frame)
        if self.whole:
            batch = replace(batch, frame=numbered(batch))
        keys, stamps, frame = self._counting(batch)
        if (added := self._added(keys, stamps, frame)) is not None:
            return added
        bundle = self.prepared(frame)
        if isinstance(self.window, Count):
            return self._by_count(
                keys, stamps, bundle, count_windows(keys, self.window.count, filled)
            )
        count = pl.len().cast(pl.Int64).alias(COUNT)
        if isinstance(self.window, Forever):
            spans = [pl.Series(START, stamps), pl.Series(END, stamps + 1)]
            groups = by_key(
                keys, [*spans, *bundle.get_columns()], [count, *self._grouped()], self.schema
            )
            groups = groups.with_columns(self._negated()) if back else groups
            return self._chosen(groups, batch)
        assigned = self._assign(keys, stamps, frame)
        if len(assigned.rows) != len(stamps) or isinstance(self.window, Sliding):
            keys, bundle = keys[assigned.rows], bundle[assigned.rows]
        columns = [
            keys.alias(KEY),
            pl.Series(START, assigned.starts),
            pl.Series(END, assigned.ends),
        ]
        whole = pl.DataFrame([*columns, *bundle.get_columns()])
        return self._chosen(by_window(whole, [count, *self._grouped()], self.schema), batch)

    def _chosen(self, groups: pl.DataFrame, batch: ColumnBatch) -> pl.DataFrame:
        """Groups of which columns hold the whole records that they keep."""
        for each in self.of_rows if self.held else ():
            groups = each.chosen(groups, batch, self.most)
        return groups

    def _by_count(
        self, keys: pl.Series, stamps: Int64s, bundle: pl.DataFrame, counted: CountedRows
    ) -> pl.DataFrame:
        stamps, bundle = stamps[counted.rows], bundle[counted.rows]
        columns = [
            keys[counted.rows].alias(KEY),
            pl.Series(START, stamps),
            pl.Series(END, stamps + 1),
        ]
        whole = pl.DataFrame([*columns, *bundle.get_columns()])
        count = pl.len().cast(pl.Int64).alias(COUNT)
        return by_number(whole, counted.windows, [count, *self._grouped()], self.schema)

    def _counting(self, batch: ColumnBatch) -> tuple[pl.Series, Int64s, pl.DataFrame]:
        """The keys, the timestamps and the fields of the records that count."""
        if self.condition is None:
            return batch.keys, batch.timestamps, batch.frame
        mask = batch.frame.select(self.condition).to_series()
        return batch.keys.filter(mask), batch.timestamps[mask.to_numpy()], batch.frame.filter(mask)

    def _added(self, keys: pl.Series, stamps: Int64s, frame: pl.DataFrame) -> pl.DataFrame | None:
        """The groups where all aggregates are sums, and keys and windows lie close together; None
        otherwise."""
        additive = [aggregate for aggregate in self.aggregates if isinstance(aggregate, Additive)]
        if not isinstance(self.window, Tumbling) or len(additive) < len(self.aggregates):
            return None
        groups = cells(key_parts(keys), stamps, self.window)
        if groups is None:
            return None
        addends = {
            name: column for aggregate in additive for name, column in aggregate.addends().items()
        }
        # A choice of no columns by their names would be all of them, without a record.
        columns = frame.with_columns(**addends).select(list(addends))
        try:
            added = [
                column for aggregate in additive for column in aggregate.added(columns, groups)
            ]
        except Unadded:
            return None
        parts = [
            pl.Series(name, part) for name, part in zip(self.key_names, groups.keys, strict=True)
        ]
        bounds = pl.Series(groups.starts), pl.Series(groups.starts + self.window.size)
        whole = [key_column(parts), *bounds, groups.counts(), *added]
        return pl.DataFrame(
            [column.alias(name) for name, column in zip(self.schema, whole, strict=True)]
        )

    def prepared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns of the aggregates, of records that count."""
        prepared = [column for aggregate in self.aggregates for column in aggregate.prepared()]
        names = [name for aggregate in self.aggregates for name in aggregate.dtypes]
        lazy = frame.lazy()
        if staged := [column for aggregate in self.aggregates for column in aggregate.staged()]:
            lazy = lazy.with_columns(staged)
        return lazy.with_columns(prepared).select(names).collect(engine="in-memory")

    def _assign(self, keys: pl.Series, timestamps: Int64s, frame: pl.DataFrame) -> Assigned:
        if isinstance(self.window, Sessions):
            return sessions_of(
                keys, timestamps, self.window.gap, isinstance(self.window, SessionPieces)
            )
        try:
            if isinstance(self.window, Cumulative):  # its machine adds the steps up
                return first_steps(self.window, timestamps)
            return self._each_alone(timestamps, frame)
        except RecordError:  # a year outside of the time zone's; one by one it shows whose
            raise Inexact from None

    def _each_alone(self, timestamps: Int64s, frame: pl.DataFrame) -> Assigned:
        """The windows of each record, which do not depend on the others."""
        if not isinstance(self.window, OfInput):
            return assign_array(self.window, timestamps)
        assigned = stated_array(self.window, frame)
        if assigned is None:
            raise Inexact
        return assigned

    def too_late(self, batch: ColumnBatch, watermark: int) -> npt.NDArray[np.bool_]:
        """Which of the records that count have no window that ends after ``watermark``."""
        assigned = self._each_alone(batch.timestamps, batch.frame)
        late = np.ones(len(batch), np.bool_)
        late[assigned.rows[still_open(assigned.ends, watermark)]] = False
        if self.condition is not None:
            late &= self._opened(batch).frame.select(self.condition).to_series().to_numpy()
        return late

    def late(self, batch: ColumnBatch, watermark: int) -> npt.NDArray[np.bool_] | None:
        """Which records are of a window that ends at or before ``watermark``. None when there is
        none, and where a record has several windows, or one that does not depend on its time.
        Raises Inexact as :meth:`group`."""
        if isinstance(self.window, (Sliding, Cumulative, Count, Forever)):
            return None
        if batch.earliest >= watermark and not isinstance(self.window, OfInput):
            return None
        ends = self._each_alone(batch.timestamps, batch.frame).ends
        late = np.logical_not(still_open(ends, watermark))
        return late if late.any() else None

    def _grouped(self) -> list[pl.Expr]:
        return [column for aggregate in self.aggregates for column in aggregate.grouped()]

    def _negated(self) -> list[pl.Expr]:
        negated = [column for aggregate in self.aggregates for column in aggregate.negated()]
        return [-pl.col(COUNT), *negated]

    def check(self, batch: ColumnBatch) -> None:
        """Raises Inexact unless all records have values that the plan can read: nothing may be
        computed over others."""
        self._check_kinds(self._opened(batch))

    def _opened(self, batch: ColumnBatch) -> ColumnBatch:
        """The batch with columns of the fields within its fields that the plan reads."""
        frame = with_inner_fields(batch.frame, self.needs)
        return batch if frame is batch.frame else replace(batch, frame=frame)

    def _check_kinds(self, batch: ColumnBatch) -> None:
        if len(batch) and not (
            batch.keys.dtype == self.key_dtype
            and is_clean(batch.frame, dict(self.kinds), self.takes_nulls)
        ):
            raise Inexact

    def divide(self, batch: ColumnBatch) -> tuple[ColumnBatch, ColumnBatch | None]:
        """The records whose values the plan can read, and those that must be processed one by one
        (None: there are none)."""
        frame = self._opened(batch).frame
        if not len(batch) or is_clean(frame, dict(self.kinds), self.takes_nulls):
            return batch, None
        clean = clean_rows(frame, dict(self.kinds), self.takes_nulls)
        if clean is None:
            clean = np.zeros(len(batch), np.bool_)
        return batch.where(clean), batch.where(~clean)

    def check_exact(self, frame: pl.DataFrame) -> None:
        """Raises Inexact unless the columns can hold the numbers of all records that count."""
        checks = [check for aggregate in self.aggregates for check in aggregate.exactness_checks()]
        if not checks or not len(frame):
            return
        selected = frame.lazy() if self.condition is None else frame.lazy().filter(self.condition)
        held = selected.select(
            check.alias(str(index)) for index, check in enumerate(checks)
        ).collect(engine="in-memory")
        if not all(held.row(0)):
            raise Inexact

    def row_groups_of(
        self, groups: pl.DataFrame, batch: ColumnBatch
    ) -> Iterator[tuple[Key, Group]]:
        """:meth:`row_groups`, with whole records that the columns of groups do not hold: ``batch``
        has them."""
        if not self.whole or self.held:
            return self.row_groups(groups)
        opened = self._opened(batch)
        chosen: dict[ColumnAggregate, Iterator[Any]] = {
            each: iter(each.accumulators(groups, opened)) for each in self.of_rows
        }
        return self.row_groups(groups, chosen)
