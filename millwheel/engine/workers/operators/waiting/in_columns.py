"""What computations share whose records wait for the watermark in columns: a bundle is a segment,
and all that the watermark has passed comes in one operation. Which keys are in columns,
operators/keys_in_columns.py says.

In rows each record has a timer of its own. A record that comes behind the watermark comes at once
there, so its key goes on in rows; as does one whose record is no result, which rows tell.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.columns_to_rows import Left
from millwheel.core.formats.store_layout import WAITING
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import held_at
from millwheel.core.ranked.kept_records import AT, Mask
from millwheel.core.waiting.records import WaitingColumns, numbers_of
from millwheel.core.waiting.segments import CHANNEL, NUMBER, WaitingSegments
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.operators.keys_in_columns import KeptBundleOperator, Offer
from millwheel.engine.workers.state.column_segments import ColumnShard

_MOST_BYTES = 64 << 20
"""Bytes of the kept records of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a step of the watermark looks at all of them."""


class WaitingOperator(KeptBundleOperator):
    """See the head of this file."""

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
        """How columns hold the records of a stream; None where they do not."""

    @abstractmethod
    def _release(self, watermark: int, bundle: Bundle) -> pl.Series:
        """Make something of the records that the watermark has passed; or return the keys of those
        that rows tell, and do nothing. Raises Unfit where these are all."""

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
            except Unfit:
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
            raise Unfit
        return columns

    def _fitting(self, batch: ColumnBatch, like: Any, bundle: Bundle) -> Mask:
        columns = self._columns_for(batch.stream)
        if columns is None:
            raise Unfit
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
        # Now: what was put aside before a bundle that fails must not be taken back with it.
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
