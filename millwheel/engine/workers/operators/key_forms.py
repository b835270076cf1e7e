"""Computations that keep the records of keys in columns, and the choice of these keys.

Every key is either in columns or in rows. Few records are as quick in rows, so a shard takes whole
bundles from the first that is worth it; the keys that rows have go on there. Keys for which only
small bundles come go on in rows, and so do the keys without a new record for the longest time once
columns hold much: some keys in each bundle (:mod:`millwheel.core.columns.state.columns_to_rows`).
So does a key with a record that has to be looked at by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.segments import ColumnarSegment, ColumnarSegments
from millwheel.core.columns.state.columns_to_rows import (
    Leaving,
    Left,
    is_among,
    keys_like,
    keys_of,
    where,
)
from millwheel.core.formats.store_layout import STATE
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import DeadLetter
from millwheel.core.rows.kept_records import ROW, KeptRecords
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Validated
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.errors import RecordError

_SMALL_BUNDLES = 32
"""Small bundles in a row after which all that columns hold goes on in rows."""
_LOOKS = 64
"""Bundles between two checks whether any key is still in rows."""
Mask = npt.NDArray[np.bool_]


class FormChoice:
    """The form of the keys of a shard. Bundles of fewer than ``few`` records are small. Of more
    than ``most_bytes`` in columns, half go on in rows. ``has_rows`` asks the store whether any key
    is in rows."""

    def __init__(
        self, kept: ColumnarSegments, few: int, most_bytes: int, has_rows: Callable[[], bool]
    ) -> None:
        self.leaving = Leaving(kept)
        self.in_rows = True
        """All keys are, or leave the columns."""
        self.some_in_rows = has_rows()
        """Whether some keys may be in rows, while others are in columns."""
        self._kept = kept
        self._few = few
        self.most_bytes = most_bytes
        self._has_rows = has_rows
        self._small = 0
        """Small bundles, one behind the other."""
        self._looks_in = _LOOKS

    @property
    def room(self) -> bool:
        """Whether keys may come back from rows without others having to go."""
        return self._kept.size() < self.most_bytes // 2

    def choose(self, count: int) -> None:
        """Choose the form of a bundle of ``count`` records."""
        if not count:
            return
        self._small = 0 if count >= self._few else self._small + 1
        if self._small > _SMALL_BUNDLES or (self._small and not self._kept):
            self.in_rows = True
        elif not self._small:
            self.in_rows = False
        self._looks_in -= 1
        if self._looks_in < 0:
            self._looks_in = _LOOKS
            self.some_in_rows = self._has_rows()

    def in_columns(
        self, batches: Sequence[AnyBatch], held: Callable[[list[Key]], Collection[Key]]
    ) -> list[Mask]:
        """Which records of each batch have a key that is, or goes, in columns. ``held`` gives those
        of some keys that are in rows."""
        if self.in_rows and not self._kept:
            return [np.zeros(len(batch), np.bool_) for batch in batches]
        if self.in_rows:
            return self.leaving.stays(batches)
        if self.some_in_rows:
            return [~_stored(batch, held) for batch in batches]
        return [np.ones(len(batch), np.bool_) for batch in batches]

    def took_in_rows(self, arrivals: Iterable[Arrival]) -> None:
        """Note the records that were taken in rows."""
        self.some_in_rows |= any(len(arrival.batch) for arrival in arrivals)

    def leave(self, count: int) -> Iterator[list[Left]]:
        """The parts that go on in rows behind a bundle of ``count`` records: in the long run as
        many as the bundles bring. The caller keeps each in rows before it asks for the next."""
        if self.in_rows:
            yield self.leaving.next_part()
            return
        left = 0
        while left <= count and (self.leaving.begun or self._kept.size() > self.most_bytes):
            segments = self.leaving.next_oldest(self.most_bytes // 2)
            left += sum(segment.groups.height for segment in segments)
            yield segments


def _stored(batch: AnyBatch, held: Callable[[list[Key]], Collection[Key]]) -> Mask:
    """Which records of a batch have a key that is in rows."""
    if isinstance(batch, ColumnBatch):
        among = held(key_list(batch.keys.unique()))
        return is_among(batch.keys, [keys_like(list(among), batch.keys.dtype)])
    among = held(list(set(batch.keys)))
    return np.fromiter((key in among for key in batch.keys), np.bool_, len(batch))


def left_in(bundle: Bundle, taken: Sequence[Mask]) -> None:
    """Leave only the records in a bundle that were not taken."""
    bundle.arrivals = [
        replace(arrival, batch=where(arrival.batch, ~mask))
        for arrival, mask in zip(bundle.arrivals, taken, strict=True)
    ]
    if bundle.traced is not None:
        bundle.traced.records = [
            replace(each, arrival=-1)
            if taken[each.arrival][each.index]
            else replace(each, index=int((~taken[each.arrival][: each.index]).sum()))
            for each in bundle.traced.records
        ]


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch, the records of it that are ``inside`` its ``columns`` (None: none), and which of
    those fit."""

    batch: AnyBatch
    columns: ColumnBatch | None
    inside: Mask
    fits: Mask


class KeptOperator(BatchOperator, Validated):
    """An operator that keeps the records of keys in columns: ``_kept``. ``_instance`` is the row
    form."""

    in_columns: bool
    """Whether some keys may be in columns."""

    def __init__(
        self, kept: ColumnarSegments, most_bytes: int, shard: ColumnShard, few: int, *arguments: Any
    ) -> None:
        """Bundles of fewer than ``few`` records are small. Of more than ``most_bytes``, half go on
        in rows."""
        super().__init__(*arguments)
        self._spec, self._pipeline = arguments[0], arguments[1]
        self._outputs = self._spec.outputs
        self._shard = shard
        self._boundary = ColumnBoundary(self._spec.name)
        self.bundles_held = 0
        self._kept = kept
        self._form = FormChoice(kept, few, most_bytes, self._has_rows)
        restore_segments(kept, shard)
        # a new owner goes on as the last one
        self._form.in_rows = not (kept and self.in_columns)
        self._of_others = self._has_others()
        """The segments are of another version of the pipeline, or of shards with other fields."""

    def _has_others(self) -> bool:
        types = [(each.groups.schema[ROW], each.groups.schema[KEY]) for each in self._segments()]
        alike = all(each == types[0] for each in types)
        return not alike or not all(self._holds(*each) for each in types)

    @abstractmethod
    def _row_type(self, stream: str) -> Any:
        """The type of the rows of a stream that columns hold; None for none."""

    @abstractmethod
    def _holds(self, rows: Any, keys: Any) -> bool:
        """Whether rows of this type, of keys of that one, may be in columns."""

    @abstractmethod
    def _columns_of(self, batch: AnyBatch, like: Any) -> KeptRecords:
        """The form in which columns hold the records of a batch. Raises Inexact where they do not.
        ``like``: the type of the rows that are held (None: of none)."""

    @abstractmethod
    def _fitting(self, batch: ColumnBatch, like: Any, bundle: Bundle) -> Mask:
        """Which records go in columns. Raises Inexact where none does."""

    @abstractmethod
    def _taken(
        self, offers: Sequence[Offer], fit: Sequence[Mask], gone: list[pl.Series], bundle: Bundle
    ) -> list[Mask]:
        """Take records in columns; returns which were taken. ``gone`` are keys that are in rows by
        now."""

    @abstractmethod
    def _keep_in_rows(self, key: Key, rows: Any) -> None:
        """Keep in rows the records that columns held of the current key."""

    @abstractmethod
    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, Any]:
        """The records of each key that columns no longer hold."""

    @abstractmethod
    def _rows_in(self, rows: Any) -> Any:
        """(value, time) of each row of a key."""

    def _segments(self) -> list[ColumnarSegment]:
        return self._kept.segments()

    def validate(self, state: StoreView) -> None:
        validate_segments([self._kept], self._shard.name, state)

    def run(self, bundle: Bundle) -> None:
        count = sum(len(arrival.batch) for arrival in bundle.arrivals)
        self._context.begin(bundle)
        if self._of_others:
            self._hand_over([Left(each.groups, each.fired) for each in self._segments()], bundle)
            self._kept.clear()
            self._of_others = False
        self._take_due(bundle)
        if self.in_columns:
            self._form.choose(count)
        if count and (self._kept or not self._form.in_rows):
            self._take_in_columns(bundle)
        super().run(bundle)
        self._form.took_in_rows(bundle.arrivals)
        for segments in self._form.leave(count):
            self._hand_over(segments, bundle)
        write_segments(self._kept, self._shard.name, bundle.overlay)

    def _take_due(self, bundle: Bundle) -> None:
        """Take the records that the watermark has passed."""

    # --- records ----------------------------------------------------------------------------------

    def _take_in_columns(self, bundle: Bundle) -> None:
        """Take the records whose keys are, or go, in columns. The others are left in the
        bundle."""
        offers = list[Offer]()
        types = {stream: self._row_type(stream) for stream in _streams_of(bundle)}
        for arrival in bundle.arrivals:
            like = types[arrival.batch.stream]
            offers.append(offer := self._offer(arrival.batch, like, bundle))
            if like is None and offer.columns is not None and offer.fits.any():
                types[arrival.batch.stream] = pl.Struct(dict(offer.columns.frame.schema))
        gone = [keys_of(where(each.batch, ~each.fits)) for each in offers if not each.fits.all()]
        self._let_go(gone, bundle)
        among = self._form.in_columns([each.batch for each in offers], self._held)
        fit = [each.fits & own for each, own in zip(offers, among, strict=True)]
        left_in(bundle, self._taken(offers, fit, gone, bundle))

    def _offer(self, batch: AnyBatch, like: Any, bundle: Bundle) -> Offer:
        """The records of a batch that columns can have."""
        none = np.zeros(len(batch), np.bool_)
        try:
            with self._boundary.inside(bundle.count):
                if isinstance(batch, ColumnBatch):
                    return Offer(batch, batch, ~none, self._fitting(batch, like, bundle))
                records = list(self._records(batch, ChannelName("")))
                values = [record.value for record in records]
                parts = batch.stream, batch.keys, values, batch.timestamps
                columns, inside = self._columns_of(batch, like).in_columns(*parts)
                fits = inside.copy()
                fits[inside] = self._fitting(columns, like, bundle)
                return Offer(batch, columns, inside, fits)
        except Inexact:
            return Offer(batch, None, none, none)

    def _held(self, keys: list[Key]) -> Collection[Key]:
        """Which of some keys are in rows."""
        return self._state.held(keys)

    def _let_go(self, keys: Sequence[pl.Series], bundle: Bundle) -> None:
        """Move some keys from columns to rows."""
        self._hand_over(self._form.leaving.taken_out(keys), bundle)
        self._form.some_in_rows |= bool(keys)

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keep the keys of these segments in rows."""
        self._form.some_in_rows |= bool(segments)
        by_key = self._rows_of(segments)
        self._state.read_ahead(list(by_key))
        for key, rows in by_key.items():
            self._context.point(key, bundle.watermark)
            try:
                self._keep_in_rows(key, rows)
                changes = self._state.encoded()
            except RecordError as ex:  # they are more than limits.state, which has been lowered
                self._state.forget()
                for value, at in self._rows_in(rows):
                    self._refuse(bundle, value, at, ex)
            else:
                self._state.write(changes)

    def _refuse(self, bundle: Bundle, value: Any, at: int, ex: RecordError) -> None:
        """Send a row of the current key that cannot be kept to the dead letters."""
        about = self._spec.name, self._spec.inputs[0].stream
        letter = DeadLetter(self._pipeline, *about, str(ex), self._context.key, value, at)
        bundle.dead_letter(letter, max(at, bundle.floor))

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(STATE)), None) is not None


class KeptBundleOperator(KeptOperator):
    """A :class:`KeptOperator` whose records have results later: a bundle is kept as it came."""

    @abstractmethod
    def _frames(
        self, offers: Sequence[Offer], taken: Sequence[Mask], bundle: Bundle
    ) -> list[pl.DataFrame]:
        """Records as columns hold them, as one frame or several. Raises Inexact."""

    def _taken(
        self, offers: Sequence[Offer], fit: Sequence[Mask], gone: list[pl.Series], bundle: Bundle
    ) -> list[Mask]:
        taken = without_keys(offers, fit, gone)
        try:
            with self._boundary.inside(bundle.count):
                frames = self._frames(offers, taken, bundle)
        except Inexact:
            pairs = zip(offers, taken, strict=True)
            self._let_go([keys_of(where(each.batch, mask)) for each, mask in pairs], bundle)
            return [np.zeros(len(mask), np.bool_) for mask in taken]
        for frame in frames:
            self._kept.add(frame)
        return taken


def without_keys(
    offers: Sequence[Offer], fit: Sequence[Mask], gone: Sequence[pl.Series]
) -> list[Mask]:
    """The records that fit, but for those of keys that have gone."""
    if not gone:
        return [*fit]
    pairs = zip(offers, fit, strict=True)
    return [mask & ~is_among(keys_of(each.batch), gone) for each, mask in pairs]


def _streams_of(bundle: Bundle) -> set[str]:
    return {arrival.batch.stream for arrival in bundle.arrivals}
