"""Computations whose records wait for the watermark in columns: a bundle is a segment, and all that
the watermark has passed comes in one operation. key_forms.py chooses the keys in columns.

In rows each record has a timer of its own. A record that comes behind the watermark comes at once
there, so its key goes on in rows; as does one whose record has no result, which rows report.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.columns_to_rows import Left
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.formats.store_layout import WAITING
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.limits import Limits
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import held_at
from millwheel.core.rows.kept_records import AT, ROW, Mask
from millwheel.core.rows.versions import (
    VERSION,
    EnrichPlan,
    VersionSegments,
    last_versions,
    versions_of,
)
from millwheel.core.rows.waiting import (
    CHANNEL,
    NUMBER,
    AnyWaitingColumns,
    KeyTypes,
    WaitingColumns,
    WaitingSegments,
    indexes_in_order,
    numbers_of,
)
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.operators.callbacks import Together
from millwheel.engine.workers.operators.key_forms import KeptBundleOperator, Offer
from millwheel.engine.workers.operators.record_computations import UNMATCHED
from millwheel.engine.workers.operators.record_joins import Enriched
from millwheel.engine.workers.state.column_segments import ColumnShard

_MOST_BYTES = 64 << 20
"""Bytes of the kept records of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a step of the watermark looks at all of them."""


KeptVersion = tuple[Any, int]
"""A value and its time."""


class WaitingOperator(KeptBundleOperator):
    """The common part of operators whose records wait. ``_waiting`` are the segments of records."""

    def __init__(
        self, kind: type[WaitingSegments], shard: ColumnShard, few: int, *arguments: Any
    ) -> None:
        """Bundles of fewer than ``few`` records are small."""
        self._waiting = waiting = kind(_FAN)
        self._timers: TimerQueue | None = None
        super().__init__(waiting, _MOST_BYTES, shard, few, *arguments)
        self._process = self._instance.process_record

    @abstractmethod
    def _columns_for(self, stream: str) -> WaitingColumns | None:
        """The form in which columns hold the records of a stream; None where they do not."""

    @abstractmethod
    def _release(self, watermark: int, bundle: Bundle) -> pl.Series:
        """Emit the results of the records that the watermark has passed; or return the keys of
        those that rows must process, and do nothing. Raises Inexact where these are all."""

    def due_at(self) -> int:
        return min(super().due_at(), self._waiting.due_at())

    def hold(self, now_us: int) -> Hold:
        own = Hold(held_at(self._waiting.fires_at()), "record (in columns) that waits for its turn")
        return min(own, super().hold(now_us), key=lambda hold: hold.at)

    def run(self, bundle: Bundle) -> None:
        self._timers = bundle.timers[Domain.EVENT]
        super().run(bundle)

    def _take_due(self, bundle: Bundle) -> None:
        watermark = bundle.watermark
        while is_behind(self._waiting.fires_at(), watermark):
            try:
                with self._boundary.inside(bundle.count):
                    apart = self._release(watermark, bundle)
            except Inexact:
                self._let_go([each[KEY].unique() for each in self._waiting.due(watermark)], bundle)
                break
            if not len(apart):
                self.bundles_held += 1
                break
            self._let_go([apart], bundle)
        self._waiting.take(watermark)

    # --- records ----------------------------------------------------------------------------------

    def _columns_of(self, batch: AnyBatch, like: Any) -> WaitingColumns:
        columns = self._columns_for(batch.stream) if len(batch.seqs) else None
        if columns is None:
            raise Inexact
        return columns

    def _fitting(self, batch: ColumnBatch, like: Any, bundle: Bundle) -> Mask:
        columns = self._columns_for(batch.stream)
        if columns is None:
            raise Inexact
        until = max(bundle.watermark, self._waiting.taken_until)
        mask: Mask = columns.fitting(batch, like) & (batch.timestamps >= until)
        return mask

    def _frames(
        self, offers: Sequence[Offer], taken: Sequence[Mask], bundle: Bundle
    ) -> list[pl.DataFrame]:
        channels = [arrival.channel for arrival in bundle.arrivals]
        new: dict[str, list[pl.DataFrame]] = {}
        for each, mask, channel in zip(offers, taken, channels, strict=True):
            if each.columns is not None and mask.any():
                frame = self._frame(each, mask, channel)
                new.setdefault(each.batch.stream, []).append(frame)
        return [self._waiting.merge(some) for some in new.values()]

    def _frame(self, offer: Offer, mask: Mask, channel: ChannelName) -> pl.DataFrame:
        assert offer.columns is not None
        numbers = numbers_of(offer.batch.seqs)[mask]
        columns = self._columns_of(offer.batch, None)
        return columns.waiting(offer.columns.where(mask[offer.inside]), channel, numbers)

    # --- keys in rows -----------------------------------------------------------------------------

    def _held(self, keys: list[Key]) -> Collection[Key]:
        # Of these computations every timer is that of a record.
        assert self._timers is not None
        waits = self._timers.waiting
        return {*self._state.held(keys), *(key for key in keys if waits(key, bool))}

    def _has_rows(self) -> bool:
        return super()._has_rows() or next(iter(self._shard.store.scan(WAITING)), None) is not None

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        super()._hand_over(segments, bundle)
        buffer = self._order.buffer
        if not segments or buffer is None:
            return
        for batch, channel in self._left_waiting(segments):
            buffer.keep(batch, channel, bundle, range(len(batch)))
        # Now: a failing bundle must not take back records that were put aside before it.
        buffer.write()

    def _left_waiting(self, segments: Sequence[Left]) -> Iterator[tuple[Batch, ChannelName]]:
        """The records that wait, of each stream and channel."""
        for segment in segments:
            waits = segment.groups.filter(pl.col(AT) >= segment.fired)
            for stream, column in self._streams():
                if column not in waits.columns:
                    continue
                rows = waits.filter(pl.col(column).is_not_null())
                for (channel,), some in rows.partition_by(CHANNEL, as_dict=True).items():
                    values = some[column].struct.unnest().to_dicts()
                    parts = some[NUMBER].to_list(), some[AT].to_list(), key_list(some[KEY]), values
                    yield Batch(stream, *parts), ChannelName(str(channel))

    @abstractmethod
    def _streams(self) -> Sequence[tuple[str, str]]:
        """Its streams, and the columns that have their records."""

    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, Any]:
        return {}

    def _keep_in_rows(self, key: Key, rows: Any) -> None:
        return

    def _rows_in(self, rows: Any) -> Any:
        return ()


class OrderedOperator(WaitingOperator):
    """The operator of steps and branches with ``order_by``: records wait in columns, and pass as
    columns in their order (:mod:`millwheel.core.rows.waiting`)."""

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
            raise Inexact  # each record is looked at
        whole = pl.concat(self._waiting.due(watermark), rechunk=True)
        whole = whole[indexes_in_order(whole)]
        frame, none = whole[ROW].struct.unnest(), np.array([], np.int64)
        stream = self._spec.inputs[0].stream
        batch = ColumnBatch(stream, none, whole[AT].to_numpy(), whole[KEY], frame)
        plan = None if self._plans is None else self._plans.of(batch)
        if plan is None:
            raise Inexact
        # An expression may take for ever on a text. Then the next owner looks at each record.
        self._at = Together()
        self._context.calls += len(batch)
        try:
            passed = plan.passed(batch)
        finally:
            self._at = None
        if not len(passed.for_rows):
            for part in passed.parts:
                bundle.outputs.produce_columns(part)
            if passed.unmatched:
                bundle.outputs.counted.append((UNMATCHED, passed.unmatched))
        return whole[KEY][passed.for_rows].unique()


class EnrichOperator(WaitingOperator):
    """The operator of ``enrich`` as of event time: records and versions wait in columns, and all
    records that have come due get their versions in one operation
    (:mod:`millwheel.core.rows.versions`)."""

    def __init__(
        self, plan: EnrichPlan | None, shard: ColumnShard, few: int, *arguments: Any
    ) -> None:
        """Without a ``plan`` all keys are in rows, also those that another version of the pipeline
        had in columns."""
        self._plan = plan
        self.in_columns = plan is not None
        super().__init__(VersionSegments, shard, few, *arguments)
        assert isinstance(self._instance, Enriched)
        self._enriched: Enriched = self._instance

    def _has_others(self) -> bool:
        """Rows and keys of another type than those of the plan, or than each other."""
        for stream, column in self._streams():
            segments = [each.groups.schema for each in self._segments()]
            types = [(each[column], each[KEY]) for each in segments if column in each]
            columns = self._columns_for(stream)
            alike = all(each == types[0] for each in types)
            if not alike or (types and (columns is None or not columns.holds(*types[0]))):
                return True
        return False

    def _row_type(self, stream: str) -> Any:
        return self._waiting.row_type(dict(self._streams())[stream])

    def _holds(self, rows: Any, keys: Any) -> bool:
        return self._plan is not None

    def _columns_for(self, stream: str) -> WaitingColumns | None:
        return None if self._plan is None else self._plan.columns[stream]

    def _streams(self) -> Sequence[tuple[str, str]]:
        versions = self._spec.work.stream
        return [
            (each.stream, VERSION if each.stream == versions else ROW) for each in self._spec.inputs
        ]

    def _release(self, watermark: int, bundle: Bundle) -> pl.Series:
        assert self._plan is not None
        enriched = self._plan.results(self._segments(), watermark)
        if enriched is None:
            return pl.Series(KEY, [])
        if not len(enriched.apart):
            for stream in self._outputs:
                bundle.outputs.produce_columns(enriched.batch.named(stream))
            if enriched.unmatched:
                bundle.outputs.counted.append((UNMATCHED, enriched.unmatched))
        return enriched.apart

    # --- keys in rows -----------------------------------------------------------------------------

    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, KeptVersion]:
        taken = [
            versions_of(each.groups.filter(pl.col(AT) < each.fired)).drop(ROW, strict=False)
            for each in segments
        ]
        taken = [each for each in taken if each.height]
        if not taken:
            return {}
        last = last_versions(pl.concat(taken, how="diagonal"))
        values = last[VERSION].struct.unnest().to_dicts()
        pairs = zip(values, last[AT].to_list(), strict=True)
        return dict(zip(key_list(last[KEY]), pairs, strict=True))

    def _keep_in_rows(self, key: Key, rows: KeptVersion) -> None:
        self._enriched.go_on(*rows)

    def _rows_in(self, rows: KeptVersion) -> list[KeptVersion]:
        return [rows]
